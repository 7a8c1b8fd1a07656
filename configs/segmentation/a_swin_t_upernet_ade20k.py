"""A-Swin-T + UperNet under standard shifts: the shift paper's Table A8 and Sec. 5.6.

The plain model and its pipeline are mmseg's. The windows of A-Swin-T divide multiples of 224
pixels, which Table A8's crops of 512 are not, and the paper does not say what it does about that.
Here, as in its circular protocol (Table A6), crops have 448 pixels, of images of Table A8's size:
padding to 672 would fill 42 % of what the model sees, and count in the statistics of batch norms.
Test images are padded to multiples of 224, below and to the right.
"""

_base_ = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrail.segmentation"], allow_failed_imports=False)

crop_size = (448, 448)
# mmseg's --tta reads this variable
data_preprocessor = dict(size=crop_size, test_cfg=dict(size_divisor=224))
model = dict(
    data_preprocessor=data_preprocessor,
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
train_dataloader = dict(batch_size=4, dataset=dict(pipeline=train_pipeline))
