"""Datasets: what they are, how to get them, and how their images become batches.

`build` opens a dataset as (PIL image, label) pairs, `verify` checks its files, `fetch` gets them.
Importing this package imports neither torch nor pydantic.
"""

from vitrail.data.fetching import fetch
from vitrail.data.opening import Split, build, verify

__all__ = ["Split", "build", "fetch", "verify"]
