"""Registers every family of models with timm, so that `timm.create_model` finds them.

A family is a module ``vitrail/<paper>/<family>.py`` that calls timm's `register_model`, as a
decorator or by a call, for each of its models at its top level. This module imports all families. A
family imports torch and timm and nothing of the workflow (no pydantic, Snakemake, mm*).

If timm has a model of the same name, `timm.create_model` makes ours after this import, and
`register_model` warns that it overwrites timm's.
"""

# decides no number: it imports every family, and a model counts where it is named

from importlib import import_module
from pathlib import Path

for _file in sorted(Path(__file__).parent.glob("*/*.py")):
    if "register_model" in _file.read_text(encoding="utf-8"):
        import_module(f"vitrail.{_file.parent.name}.{_file.stem}")
