"""Vitrail: four Vision Transformer papers, every table and figure rebuilt by one command.

Models and methods:

- `make_shift_equivariant`: make a Swin, SwinV2, MViTv2 or CvT shift-equivariant (shift);
- `GroupAverage`: make any classifier invariant to quarter turns and mirrors (beside octic);
- `rescale_pos_embed`: adapt a Vision Transformer to images of another size (variance);
- `UPerNet`: a segmenter whose logits shift with the image (shift);
- `import vitrail.models`: the models that `timm.create_model` then knows.

Measures of a model:

- `position_shap` (position), `circular_consistency` (shift), `accuracy_under_turns` (octic);
- `equivariance_error`: how far a module is from commuting with a group;
- `permutable`: a model whose positions `position_shap` can permute.

The measures, `make_shift_equivariant` and `rescale_pos_embed` answer bad input with a
`VitrailError`, whose one sentence says what to do.

Importing this package imports neither torch nor timm. Each of these names is imported when it is
first used: the catalogue must load without torch, and the models without pydantic or Snakemake.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitrail.checked_measures import accuracy_under_turns as accuracy_under_turns
    from vitrail.checked_measures import circular_consistency as circular_consistency
    from vitrail.checked_measures import equivariance_error as equivariance_error
    from vitrail.checked_measures import position_shap as position_shap
    from vitrail.errors import VitrailError as VitrailError
    from vitrail.measures.permutable import permutable as permutable
    from vitrail.octic.group_averaging import GroupAverage as GroupAverage
    from vitrail.shift.conversion import make_shift_equivariant as make_shift_equivariant
    from vitrail.shift.upernet import UPerNet as UPerNet
    from vitrail.variance.rescaling import rescale_pos_embed as rescale_pos_embed

__version__ = "0.1.0"

_PUBLIC = {
    "GroupAverage": "vitrail.octic.group_averaging:GroupAverage",
    "UPerNet": "vitrail.shift.upernet:UPerNet",
    "VitrailError": "vitrail.errors:VitrailError",
    "accuracy_under_turns": "vitrail.checked_measures:accuracy_under_turns",
    "circular_consistency": "vitrail.checked_measures:circular_consistency",
    "equivariance_error": "vitrail.checked_measures:equivariance_error",
    "make_shift_equivariant": "vitrail.shift.conversion:make_shift_equivariant",
    "permutable": "vitrail.measures.permutable:permutable",
    "position_shap": "vitrail.checked_measures:position_shap",
    "rescale_pos_embed": "vitrail.variance.rescaling:rescale_pos_embed",
}
"""The public names that are imported when they are first used (PEP 562)."""

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'vitrail' has no attribute '{name}'")
    module, _, attribute = _PUBLIC[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])
