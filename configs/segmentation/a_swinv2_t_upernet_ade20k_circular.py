"""A-SwinV2-T + UperNet under circular shifts: the shift paper's Table A7 and Sec. 5.5."""

_base_ = "./swinv2_t_upernet_ade20k_circular.py"

model = dict(
    backbone=dict(type="AdaptiveSwinV2"),
    decode_head=dict(type="AdaptiveUPerHead"),
    auxiliary_head=dict(type="AdaptiveFCNHead"),
)
