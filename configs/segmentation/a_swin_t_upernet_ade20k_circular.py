"""A-Swin-T + UperNet under circular shifts: the shift paper's Table A6 and Sec. 5.5."""

_base_ = "./swin_t_upernet_ade20k_circular.py"

model = dict(
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
