"""DeiT-S/16 + UperNet with a multi-level neck on ADE20K: the variance paper's Table 4."""

_base_ = "mmseg::vit/vit_deit-s16_mln_upernet_8xb2-160k_ade20k-512x512.py"
custom_imports = dict(imports=["vitrail.segmentation"], allow_failed_imports=False)

model = dict(
    pretrained=None,
    backbone=dict(
        _delete_=True,
        type="TimmViT",
        img_size=512,
        drop_path_rate=0.1,
        init_cfg=dict(
            type="Pretrained",
            checkpoint="https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth",
        ),
    ),
)
train_dataloader = dict(batch_size=4)
