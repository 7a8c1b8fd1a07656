"""Check names of models in timm's registry, which includes the models of this library."""

from __future__ import annotations

import difflib

import timm

import vitrail.models  # noqa: F401
from vitrail.errors import VitrailError, did_you_mean


def require_model(name: str) -> None:
    """Check that timm has a model of this name.

    Raises:
        VitrailError: timm has no such model; the message suggests the closest name, or lists five.
    """
    if not timm.is_model(name):
        known = difflib.get_close_matches(name, timm.list_models(), n=5, cutoff=0)
        raise VitrailError(f"there is no model '{name}'{did_you_mean(name, known)}")
