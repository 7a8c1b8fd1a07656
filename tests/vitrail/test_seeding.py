import random

import numpy as np
import torch

from vitrail.seeding import derive, seed_everything


def draws() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_the_same_counters_give_the_same_draws_from_every_generator():
    seed_everything("micro-batch", 3, 10, 1)
    first = draws()
    draws()
    seed_everything("micro-batch", 3, 10, 1)
    assert draws() == first


def test_every_counter_and_the_purpose_change_every_draw():
    seen = []
    for purpose, *counters in [
        ("micro-batch", 3, 10, 1),
        ("micro-batch", 4, 10, 1),
        ("micro-batch", 3, 11, 1),
        ("micro-batch", 3, 10, 2),
        ("micro-batch", 3, 1, 10),
        ("initial weights", 3, 10, 1),
    ]:
        seed_everything(purpose, *counters)
        seen.append(draws())
    for generator in zip(*seen, strict=True):
        assert len(set(generator)) == len(seen)


def test_counters_do_not_run_together():
    assert derive("micro-batch", 1, 11) != derive("micro-batch", 11, 1)
    assert derive("micro-batch", 1, 11) != derive("micro-batch", 111)


def test_seeds_fit_every_generator():
    seeds = [derive("micro-batch", 0, step) for step in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)
