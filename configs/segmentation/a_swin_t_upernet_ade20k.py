"""A-Swin-T + UperNet under standard shifts: the shift paper's Table A8 and Sec. 5.6.

The plain model and the pipeline are mmseg's. The windows of A-Swin-T divide multiples of 224
pixels, which crops of 512 are not; the paper does not say what it does about that. Here crops and
test images are padded to such multiples, below and to the right, with pixels that no loss counts.
"""

_base_ = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrine.segmentation"], allow_failed_imports=False)

model = dict(
    data_preprocessor=dict(size=(672, 672), test_cfg=dict(size_divisor=224)),
    backbone=dict(
        _delete_=True,
        type="AdaptiveSwin",
        img_size=672,
        drop_path_rate=0.3,
        init_cfg=dict(
            type="Pretrained",
            checkpoint="https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_tiny_patch4_window7_224.pth",
        ),
    ),
    decode_head=dict(type="AdaptiveUPerHead"),
    auxiliary_head=dict(type="AdaptiveFCNHead"),
)
train_dataloader = dict(batch_size=4)
