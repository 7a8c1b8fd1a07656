"""Swin-T + UperNet under circular shifts: the shift paper's Table A6 and Sec. 5.5."""

_base_ = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrail.segmentation"], allow_failed_imports=False)

crop_size = (448, 448)
scale = (1792, 448)
circular = dict(type="CircularConv2d")
model = dict(
    data_preprocessor=dict(size=crop_size),
    decode_head=dict(conv_cfg=circular),
    auxiliary_head=dict(conv_cfg=circular),
)

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    # Printed as "Resize", as is mmseg's default in Table A8, which has this range of ratios.
    dict(type="RandomResize", scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=scale, keep_ratio=True),
    dict(type="ResizeToMultiple", size_divisor=224),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    dict(type="PackSegInputs"),
]
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1]["transforms"].insert(1, [dict(type="ResizeToMultiple", size_divisor=224)])
