"""Registers the backbones with timm: each family's module has its own entrypoints."""

from vitrine.shift import adaptive_cvt, cvt, mvitv2, swin, swinv2

__all__ = ["adaptive_cvt", "cvt", "mvitv2", "swin", "swinv2"]
