"""DeiT-S/16 + UperNet with a multi-level neck on LoveDA: the variance paper's Table 4.

Test images have their full 1024x1024 pixels, as in mmseg.
"""

_base_ = "./deit_s_upernet_ade20k.py"

model = dict(decode_head=dict(num_classes=7), auxiliary_head=dict(num_classes=7))

test_pipeline = [
    dict(type="LoadImageFromFile"),
    dict(type="Resize", scale=(1024, 1024), keep_ratio=True),
    dict(type="LoadAnnotations", reduce_zero_label=True),
    dict(type="PackSegInputs"),
]
dataset = dict(type="LoveDADataset", data_root="data/loveDA")
train_dataloader = dict(
    dataset=dict(
        **dataset, data_prefix=dict(img_path="img_dir/train", seg_map_path="ann_dir/train")
    )
)
val_dataloader = dict(
    dataset=dict(
        **dataset,
        data_prefix=dict(img_path="img_dir/val", seg_map_path="ann_dir/val"),
        pipeline=test_pipeline,
    )
)
test_dataloader = val_dataloader
