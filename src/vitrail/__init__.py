"""Vitrail: four Vision Transformer papers, every table and figure rebuilt by one command.

Importing this package imports nothing heavy: the catalogue must load without torch, and the
models (`import vitrail.models`) without pydantic or Snakemake.
"""

__version__ = "0.1.0"
