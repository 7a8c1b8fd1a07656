"""A-Swin-T + UperNet under standard shifts: the shift paper's Table A8 and Sec. 5.6.

The plain model and its pipeline are mmseg's. The windows of A-Swin-T divide multiples of 224
pixels, which Table A8's crops of 512 are not, and the paper does not say what it does about that.
Here, as in its circular protocol (Table A6), crops have 448 pixels, of images of Table A8's size,
and test images are resized to the next multiples. Padding to 672 would fill 42 % of what the model
sees, and count in the statistics of batch norms.
"""

_base_ = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrail.segmentation"], allow_failed_imports=False)

crop_size = (448, 448)
model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(
        _delete_=True,
        type="AdaptiveSwin",
        img_size=448,
        drop_path_rate=0.3,
        init_cfg=dict(
            type="Pretrained",
            checkpoint="https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth",
        ),
    ),
    decode_head=dict(type="AdaptiveUPerHead"),
    auxiliary_head=dict(type="AdaptiveFCNHead"),
)

train_pipeline = _base_.train_pipeline
train_pipeline[3].update(crop_size=crop_size)
test_pipeline = _base_.test_pipeline
test_pipeline.insert(2, dict(type="ResizeToMultiple", size_divisor=224))
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1]["transforms"].insert(1, [dict(type="ResizeToMultiple", size_divisor=224)])
