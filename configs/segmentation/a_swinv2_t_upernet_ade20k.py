"""A-SwinV2-T + UperNet under standard shifts: the shift paper's Table A8 and Sec. 5.6."""

_base_ = "./swinv2_t_upernet_ade20k.py"

model = dict(
    backbone=dict(type="AdaptiveSwinV2"),
    decode_head=dict(type="AdaptiveUPerHead"),
    auxiliary_head=dict(type="AdaptiveFCNHead"),
)
