"""Counter-based randomness: every draw follows from (seed, step, micro-batch) alone.

Before micro-batch m of step s every generator is seeded from (seed, s, m). So no generator's state
outlives a micro-batch, and there is none to save: a resumed run draws what an uninterrupted one
would have drawn, and N processes draw what one process with accumulation draws.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def derive(purpose: str, *counters: int) -> int:
    """Return 63 bits that follow from `purpose` and the counters.

    A hash, not a sum: neighbouring counters give unrelated seeds, and purposes never share one.
    """
    text = "/".join([purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_everything(purpose: str, *counters: int) -> None:
    """Seed Python's, NumPy's and torch's global generators (CUDA's with them)."""
    value = derive(purpose, *counters)
    random.seed(value)
    np.random.seed(value & 0xFFFFFFFF)
    # What torch.manual_seed does, which without a GPU takes half of a small model's step overhead.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(value)
