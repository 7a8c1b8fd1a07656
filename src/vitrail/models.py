"""Registers every family of models with timm, so that `timm.create_model` finds them.

A family is a module ``vitrail/<paper>/<family>.py`` with `@register_model` functions at its top
level, each under the model's own name. This module imports all that have one. A family imports
torch and timm and nothing of the workflow (no pydantic, Snakemake, mm*).

Raises VitrailError where timm knows one of the names from another module: to register it again
would replace that model.
"""

# decides no number: it imports every family, and a model counts where it is named

import re
from importlib import import_module
from pathlib import Path

import timm

from vitrail.errors import VitrailError

for _file in sorted(Path(__file__).parent.glob("*/*.py")):
    _family = f"vitrail.{_file.parent.name}.{_file.stem}"
    _source = _file.read_text(encoding="utf-8")
    _names = re.findall(r"^@register_model\ndef (\w+)", _source, re.MULTILINE)
    for _name in _names:
        if timm.is_model(_name) and timm.model_entrypoint(_name).__module__ != _family:
            raise VitrailError(
                f"the name '{_name}' of {_file} is taken by a model of "
                f"{timm.model_entrypoint(_name).__module__} (timm {timm.__version__}): rename the "
                "function, or use a version of timm without that model"
            )
    if _names:
        import_module(_family)
