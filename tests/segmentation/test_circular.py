import torch

import vitrine.segmentation  # noqa: F401  # isort: skip
from mmcv.cnn import ConvModule


def test_mmsegs_convolutions_become_circular_by_their_config():
    conv = ConvModule(2, 3, 3, padding=1, conv_cfg={"type": "CircularConv2d"}).double()
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(conv(x.roll((2, 3), (2, 3))), conv(x).roll((2, 3), (2, 3)))
    assert [name for name, _ in conv.named_parameters()] == ["conv.weight", "conv.bias"]
