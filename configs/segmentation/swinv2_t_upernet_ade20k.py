"""SwinV2-T + UperNet under standard shifts: the shift paper's Table A8 and Sec. 5.6.

The pipeline is mmseg's default one. Test images are padded to multiples of 256 pixels, below and to
the right, so that the plain and the adaptive model see the same.
"""

_base_ = "mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrail.segmentation"], allow_failed_imports=False)

data_preprocessor = dict(test_cfg=dict(size_divisor=256))  # mmseg's --tta reads this variable
model = dict(
    data_preprocessor=data_preprocessor,
    backbone=dict(
        _delete_=True,
        type="TimmSwinV2",
        img_size=512,
        drop_path_rate=0.3,
        init_cfg=dict(
            type="Pretrained",
            checkpoint="https://github.com/SwinTransformer/storage/releases/download/v2.0.0/swinv2_tiny_patch4_window8_256.pth",
        ),
    ),
)
# No weight decay for the parameters that replace Swin's table of relative positions in SwinV2.
optim_wrapper = dict(
    paramwise_cfg=dict(
        custom_keys={"cpb_mlp": dict(decay_mult=0.0), "logit_scale": dict(decay_mult=0.0)}
    )
)
train_dataloader = dict(batch_size=4)
