"""Semantic segmentation with MMSegmentation: what the papers' models need beyond it.

Importing this package registers everything with mmseg, so that a config of mmseg's says
``custom_imports = dict(imports=["vitrail.segmentation"])`` and works with mmseg's own tools:

- `backbones`, `vit`: timm's SwinV2 and ViT; `adaptive_backbones`: Swin and SwinV2,
  shift-equivariant;
- `adaptive_heads`: UperNet's heads, shift-equivariant, on the decoder of `vitrail.shift.upernet`.
"""

# decides no number: it registers every type, and one counts where it is named

import contextlib
import functools
import io
import warnings

import vitrail.models  # noqa: F401

# mmseg prints which optional packages it could not import, and mmcv warns; none is needed here.
with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="Fail to import")
    from vitrail.segmentation import adaptive_backbones as adaptive
    from vitrail.segmentation import adaptive_heads as heads
    from vitrail.segmentation import backbones, vit

from mmengine.config import utils

# Advice on choices that mmseg's own configs make.
for advice in ("Default ``avg_non_ignore``", "`reduce_zero_label` will be deprecated"):
    warnings.filterwarnings("ignore", message=advice)

# mmengine looks for the configs of ``mmseg::`` in the distribution of that name, which today is
# another project. By the name of the module it finds them in both.
utils.MODULE2PACKAGE["mmseg"] = "mmseg"
# mmengine reads fifty files to find one config, so the files are cached.
utils.load = functools.cache(utils.load)

__all__ = ["adaptive", "backbones", "heads", "vit"]
