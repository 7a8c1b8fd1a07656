"""A table that was interpolated once loses little by a second interpolation."""

from pathlib import Path

import pytest
import torch

from replication.context import Context
from replication.papers.variance.white_noise import interpolated_noise
from vitrail.variance.upsampling import upsample, variance_ratio

CONTEXT = Context(device="cpu", data_root=Path("data"), seed=0)


def test_interpolated_noise_keeps_what_sampled_noise_keeps():
    noise = torch.randn(1, 4000, 4, 4, generator=torch.Generator().manual_seed(0))
    table = upsample(noise, (9, 9))
    kept = (upsample(table, (18, 18)).var() / table.var()).item()
    values = interpolated_noise(CONTEXT, [4, 9, 18])
    assert values["baseline/ratio"] == pytest.approx(kept, rel=0.01)
    assert values["iid/ratio"] == pytest.approx(kept / variance_ratio((9, 9), (18, 18)), rel=0.01)
    assert (values["P/ratio"], values["empirical/ratio"]) == (1, 1)


def test_a_table_that_was_not_interpolated_before_keeps_what_theorem_1_says():
    """variance, Theorem 1."""
    values = interpolated_noise(CONTEXT, [16, 16, 32])
    assert values["baseline/ratio"] == pytest.approx(variance_ratio((16, 16), (32, 32)))
    assert values["iid/ratio"] == pytest.approx(1)
