"""Semantic segmentation with MMSegmentation: what the papers' models need beyond it.

Importing this package registers everything with mmseg, so that a config of mmseg's says
``custom_imports = dict(imports=["vitrine.segmentation"])`` and works with mmseg's own tools:

- `backbones`: timm's Swin and SwinV2, plain and shift-equivariant; `vit`: timm's ViT;
- `heads`: UperNet's heads, shift-equivariant; `unpooling`: how they put features back;
- `sampling`: the stand-in for ADE20K, and what the loaders of a training draw.
"""

import contextlib
import io
import warnings

import vitrine.models  # noqa: F401

# mmseg prints what it could not import, and mmcv warns of it; nothing here needs that.
with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Fail to import")
    from vitrine.segmentation import backbones, heads, sampling, vit

from mmengine.config.utils import MODULE2PACKAGE

# Advice on choices that mmseg's own configs make.
for advice in ("Default ``avg_non_ignore``", "`reduce_zero_label` will be deprecated"):
    warnings.filterwarnings("ignore", message=advice)

# mmengine looks for the configs of ``mmseg::`` in the distribution of that name, which is another
# one's today; by the name of the module it finds them in either.
MODULE2PACKAGE["mmseg"] = "mmseg"

__all__ = ["backbones", "heads", "sampling", "vit"]
