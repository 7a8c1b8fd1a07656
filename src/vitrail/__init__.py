"""Vitrail: four Vision Transformer papers, every table and figure rebuilt by one command.

Importing this package imports nothing heavy: the catalogue must load without torch, and the
models (`import vitrail.models`) without pydantic or Snakemake.
"""

from vitrail import torchvision_compat

__version__ = "0.1.0"

torchvision_compat.install()
