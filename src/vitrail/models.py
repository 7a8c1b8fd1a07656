"""Registers every family of models with timm, so that `timm.create_model` finds them.

A family is a module ``vitrail/<paper>/<family>.py`` with `@register_model` functions at its top
level, each under the model's own name, or calls of `register_models`. This module imports all that
have one. A family imports torch and timm and nothing of the workflow (no pydantic, Snakemake, mm*).
"""

import re
from importlib import import_module
from pathlib import Path

for _family in sorted(Path(__file__).parent.glob("*/*.py")):
    if re.search(r"^@?register_model", _family.read_text(encoding="utf-8"), re.MULTILINE):
        import_module(f"vitrail.{_family.parent.name}.{_family.stem}")
