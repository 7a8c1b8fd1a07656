"""Registers every family of models with timm, so that `timm.create_model` finds them.

A family is a module `vitrine/<paper>/models.py` with `@register_model` functions; this module
imports whichever exist, so a new paper's folder is all that a new family needs. A family imports
torch and timm and nothing of the workflow (no pydantic, Snakemake or mm*).
"""

from importlib import import_module
from pathlib import Path

for _family in sorted(Path(__file__).parent.glob("*/models.py")):
    import_module(f"vitrine.{_family.parent.name}.models")
