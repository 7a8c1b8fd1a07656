"""Savings are counted on real blocks."""

from dataclasses import replace

import pytest
from torch import nn

from replication.context import Context
from replication.measures.flops import flops
from replication.papers.octic import measures
from replication.papers.octic.measures import (
    arithmetic_intensity,
    block_operations,
    block_ratios,
    compute,
    invariance,
    module_runtime,
)
from vitrail.errors import VitrailError


@pytest.fixture
def context(tmp_path):
    return Context("cpu", tmp_path, 0)


@pytest.mark.parametrize(
    ("printed", "shape"),
    [
        (4.58, {"dim": 1024, "mlp_dim": 4096, "heads": 16}),  # L/16
        (4.58, {"dim": 1280, "mlp_dim": 5120, "heads": 16, "tokens": 257}),  # H/14
        (4.88, {"dim": 1664, "mlp_dim": 8192, "heads": 16}),  # G
        (5.01, {"dim": 1792, "mlp_dim": 15360, "heads": 16}),  # e
        (5.18, {"dim": 6144, "mlp_dim": 24576, "heads": 48}),  # 22B
    ],
)
def test_the_block_ratios_of_table_1_are_the_printed_ones(context, printed, shape):
    """octic, Sec. 3.4."""
    values = block_ratios(context, {"block": shape})
    assert values["block/truncated"] == printed
    assert printed <= values["block/ratio"] < printed + 0.01


def test_the_ratio_grows_with_the_width_to_that_of_the_linear_layers(context):
    widths = (384, 768, 1536, 12288, 98304)
    shapes = {str(d): {"dim": d, "mlp_dim": 4 * d, "heads": d // 64} for d in widths}
    ratios = [block_ratios(context, shapes)[f"{d}/ratio"] for d in widths]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(16 / 3, abs=0.02)


def test_a_dense_block_is_counted_by_hand():
    dim, mlp, tokens = 16, 64, 5
    products = tokens * (4 * dim**2 + 2 * dim * mlp) + 2 * tokens**2 * dim
    elementwise = tokens * (2 * 5 * dim + 8 * mlp + 4 * dim)  # norms, GELU, scales and sums
    dense, _ = block_operations(dim, mlp, heads=2, tokens=tokens)
    assert dense == products + elementwise


def test_an_octic_block_is_counted_by_hand():
    """By the paper's fast Fourier transform, and a layer norm that shifts an eighth."""
    dim, mlp, tokens = 16, 64, 5
    products = tokens * (4 * dim**2 + 2 * dim * mlp) * 12 // 64 + 2 * tokens**2 * dim
    transforms = 2 * (24 + 8) * mlp // 8
    norms = 2 * (4 * dim + dim // 8)
    elementwise = tokens * (norms + 8 * mlp + transforms + 4 * dim)
    _, octic = block_operations(dim, mlp, heads=2, tokens=tokens)
    assert octic == products + elementwise


WITHOUT_CLASS_TOKEN = {"invariant": "linear", "class_token": False, "global_pool": "avg"}


# Of Table 2; "unfused" are those that count attention's softmax.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("printed", "reading", "model", "args"),
    [
        (127.4, "gmacs", "h2_vit_huge_patch14_224", {}),
        (103.95, "gmacs", "octic_i8_vit_huge_patch14_224", {"invariant": "polynomial"}),
        (102.57, "gmacs", "octic_i8_vit_huge_patch14_224", {"invariant": "power_spectrum"}),
        (102.3, "gmacs", "octic_h8_vit_huge_patch14_224", {}),
        (87.3, "gmacs_unfused", "d2_vit_huge_patch14_224", {}),
        (46.9, "gmacs", "h2_vit_large_patch16_224", {}),
        (38.5, "gmacs", "octic_i8_vit_large_patch16_224", {"invariant": "polynomial"}),
        (37.84, "gmacs", "octic_i8_vit_large_patch16_224", {"invariant": "power_spectrum"}),
        (37.7, "gmacs", "octic_h8_vit_large_patch16_224", {}),
        (32.2, "gmacs_unfused", "d2_vit_large_patch16_224", {}),
        (36.6, "gmacs", "octic_d8_vit_huge_patch14_224", WITHOUT_CLASS_TOKEN),
        (13.5, "gmacs", "octic_d8_vit_large_patch16_224", WITHOUT_CLASS_TOKEN),
    ],
)
def test_the_operations_of_table_2_are_the_printed_ones(context, printed, reading, model, args):
    values = flops(context, {"model": {"name": model, "args": args}})
    assert values[f"model/{reading}"] == pytest.approx(printed, abs=0.05)


@pytest.mark.parametrize(("printed", "size"), [(36.6, "huge_patch14"), (13.5, "large_patch16")])
def test_d8_with_a_class_token_takes_more_operations_than_are_printed(context, printed, size):
    """As many more as a token takes."""
    values = flops(context, {"d8": {"name": f"octic_d8_vit_{size}_224"}})
    assert printed + 0.05 < values["d8/gmacs"] < printed + 0.15


@pytest.mark.parametrize("shape", [{"dim": 64, "heads": 1}, {"dim": 64, "width": 1}])
def test_an_incomplete_shape_is_refused(context, shape):
    with pytest.raises(VitrailError, match=r"'L' has dim, .*; give dim, mlp_dim and heads"):
        block_ratios(context, {"L": shape})


def test_d8_and_i8_are_invariant_and_h8_is_not(context):
    shape = {"img_size": 32, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
    args = {**shape, "init_values": 1.0}  # lest CLS, which carries the logits, see little else
    models = {
        family: {"name": f"octic_{family}_vit_small_patch16_224", "args": args, "image_size": 32}
        for family in ("d8", "i8", "h8")
    }
    values = invariance(context, models)
    assert values["d8/relative"] < 1e-12
    assert values["i8/relative"] < 1e-12
    assert values["h8/relative"] > 1e-3
    assert values["h8/error"] > 1e3 * values["d8/error"]


def test_every_module_of_table_4_is_timed_at_every_width(context):
    """octic, App. A.2."""
    values = module_runtime(context, (16, 32), batch_size=1, passes=1, warmup=0, tokens=3)
    names = ("GELU", "octic GELU", "MLP", "octic MLP", "overhead")
    assert list(values) == [f"{name}/{dim}" for dim in (16, 32) for name in names]
    for dim in (16, 32):
        assert all(0.1 < values[f"{name}/{dim}"] < 1e6 for name in names[:4])
        times_longer = values[f"octic GELU/{dim}"] / values[f"GELU/{dim}"]
        assert values[f"overhead/{dim}"] == pytest.approx(100 * (times_longer - 1))


def test_runtimes_are_means_over_the_passes(context, monkeypatch):
    """octic, App. A.2: averaged over 1000 runs."""
    seconds = {"GELU/16": [1.0, 1.0, 4.0], "octic GELU/16": [2.0, 2.0, 5.0]}
    monkeypatch.setattr(measures, "time_in_turns", lambda *_: seconds)
    values = module_runtime(context, (16,), batch_size=1, passes=3, tokens=3)
    assert [values["GELU/16"], values["octic GELU/16"]] == pytest.approx([2e6, 3e6])
    assert values["overhead/16"] == pytest.approx(50)


def test_nothing_to_time_is_refused(context):
    with pytest.raises(VitrailError, match="passes is 0"):
        module_runtime(context, passes=0)


def test_octic_layers_overtake_in_intensity_where_the_crossing_says(context):
    """octic, App. B."""
    crossing = arithmetic_intensity(context, [])["crossing"]
    assert crossing == 3185  # 13 x 196 x 5/4
    below, at, above = 3000, 3185, 3400
    values = arithmetic_intensity(context, [below, at, above])
    assert values[f"octic/{below}"] < values[f"dense/{below}"]
    assert values[f"octic/{at}"] == pytest.approx(values[f"dense/{at}"])
    assert values[f"octic/{above}"] > values[f"dense/{above}"]


def test_a_large_batch_is_bound_by_its_weights_reuse(context):
    """With unlimited tokens a layer does 2 D F / (D + F) operations a number, or 3/16 of that."""
    values = arithmetic_intensity(context, [1024], tokens=10**9, bytes=2)
    assert values["dense/1024"] == pytest.approx(1024 * 4 / 5, rel=1e-4)
    assert values["octic/1024"] == pytest.approx(3 / 16 * 1024 * 4 / 5, rel=1e-4)


def test_compute_is_what_the_training_took(trained_on_digits):
    """octic, App. E.5."""
    facts = {"device": "GPU", "wall_seconds": 5400.0, "processes": 4, "attempts": 2}
    trained = replace(trained_on_digits(nn.Identity()), facts=facts)
    assert compute(trained) == {"hours": 1.5, "devices": 4, "gpu_hours": 6, "attempts": 2}


def test_a_run_that_does_not_say_its_time_is_refused(trained_on_digits, tmp_path):
    trained = replace(trained_on_digits(nn.Identity()), folder=tmp_path)
    with pytest.raises(VitrailError, match=f"{tmp_path} does not say its wall_seconds; delete"):
        compute(trained)
