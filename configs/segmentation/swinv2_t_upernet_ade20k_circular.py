"""SwinV2-T + UperNet under circular shifts: the shift paper's Table A7 and Sec. 5.5.

The training pipeline of Table A7 is mmseg's default one.
"""

_base_ = "./swinv2_t_upernet_ade20k.py"

circular = dict(type="CircularConv2d")
data_preprocessor = dict(test_cfg=None)
model = dict(
    data_preprocessor=data_preprocessor,
    decode_head=dict(conv_cfg=circular),
    auxiliary_head=dict(conv_cfg=circular),
)

test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(2048, 512), keep_ratio=True),
    dict(type="ResizeToMultiple", size_divisor=256),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    dict(type="PackSegInputs"),
]
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1]["transforms"].insert(1, [dict(type="ResizeToMultiple", size_divisor=256)])
