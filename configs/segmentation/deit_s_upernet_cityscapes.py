"""DeiT-S/16 + UperNet with a multi-level neck on Cityscapes: the variance paper's Table 4."""

_base_ = "./deit_s_upernet_ade20k.py"

crop_size = (1024, 1024)
scale = (2048, 1024)
model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(img_size=1024),
    decode_head=dict(num_classes=19),
    auxiliary_head=dict(num_classes=19),
)

train_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="LoadAnnotations"),
    dict(type="RandomResize", scale=scale, ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type="RandomCrop", crop_size=crop_size, cat_max_ratio=0.75),
    dict(type="RandomFlip", prob=0.5),
    dict(type="PhotoMetricDistortion"),
    dict(type="PackSegInputs"),
]
test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=scale, keep_ratio=True),
    dict(type="LoadAnnotations"),
    dict(type="PackSegInputs"),
]
dataset = dict(type="CityscapesDataset", data_root="data/cityscapes/")
train_dataloader = dict(
    dataset=dict(
        **dataset,
        data_prefix=dict(img_path="leftImg8bit/train", seg_map_path="gtFine/train"),
        pipeline=train_pipeline,
    )
)
val_dataloader = dict(
    dataset=dict(
        **dataset,
        data_prefix=dict(img_path="leftImg8bit/val", seg_map_path="gtFine/val"),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
