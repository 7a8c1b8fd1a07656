"""Counter-based randomness: every draw follows from (seed, step, micro-batch) alone.

Before micro-batch m of step s every generator is seeded from (seed, s, m). So no state of a
generator is needed after its micro-batch, and none is saved. A resumed run draws the same numbers
as an uninterrupted one, and N processes the same as one process with gradient accumulation.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def derive(purpose: str, *counters: int) -> int:
    """Return 63 bits that follow from `purpose` and the counters.

    The bits are a hash, not a sum: neighbouring counters give unrelated seeds, and different
    purposes never share a seed.
    """
    text = "/".join([purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_everything(purpose: str, *counters: int) -> None:
    """Seed Python's, NumPy's and torch's global generators (CUDA's with them)."""
    value = derive(purpose, *counters)
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    # The same as torch.manual_seed, whose call takes half of the overhead of a small model's step
    # without a GPU.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(value)
