from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import timm
import torch
from torch import nn

from replication.config.datasets import load_registry
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import parse
from replication.context import Context, Trained
from replication.images.loading import TrainingSamples
from replication.images.opening import build
from replication.images.transforms import eval_transform, train_transform
from replication.measures.accuracy import accuracy
from replication.measures.packed_scores import unpack
from replication.measures.resume import keeping
from replication.papers.variance import measures
from replication.papers.variance.measures import (
    amplification,
    embedding_variance,
    normalisation_gradient,
    position_maps,
    rescaling,
    upsampling,
)
from replication.training.model_factory import build_model
from vitrail.errors import VitrailError
from vitrail.variance.rescaling import patch_positions, rescale_pos_embed

MODES = ["nearest", "bilinear", "bicubic"]
CPU = Context(device="cpu", data_root=Path("data"), seed=0)
EVALUATION = {"trained_at": 224, "mode": "bicubic", "antialias": False, "batch_size": 16}


@pytest.fixture(scope="module")
def trained(root, tmp_path_factory):
    """A micro model whose answers hang on its positions, unlike those of one fresh from timm."""
    recipe = parse(
        ClassificationRecipe,
        {
            "model": {
                "name": "vit_small_patch16_224",
                "args": {
                    "img_size": 28, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2,
                    "weight_init": "jax",
                },
            },
            "data": {"dataset": "digits", "image_size": 28, "crop_pct": 0.9},
            "augmentation": {"hflip": 0.0, "scale": [0.6, 1.0]},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 8, "micro": 8},
        },
        "test",
    )  # fmt: skip
    info = load_registry(root / "configs" / "datasets.yaml")["digits"]
    torch.manual_seed(0)
    model = build_model(recipe, info.classes).eval()
    nn.init.normal_(model.pos_embed, std=0.5)
    nn.init.normal_(model.head.weight)
    with torch.no_grad():
        model.cls_token.zero_()
        model.pos_embed[:, 0] = 0  # so that the class token is what it attends to
    return Trained("cpu", tmp_path_factory.mktemp("data"), 0, model=model, recipe=recipe, info=info)


def test_upsampling_gives_every_quantity_of_every_case():
    values = upsampling(
        Context("cpu", data_root=None, seed=0),
        modes=["bicubic", "nearest"],
        cases={
            "224-448": {"old": 224, "new": 448},
            "aa": {"old": 14, "new": 54, "antialias": True},
        },
        monte_carlo={"case": "224-448", "maps": 2},
    )
    assert len(values) == 2 * 3 * 5
    assert values["bicubic 224-448/k2D"] == pytest.approx(0.72952, abs=1e-5)
    assert values["bicubic 224-448/1/sqrt(k1D)"] == pytest.approx(1.0820, abs=5e-5)
    assert values["bicubic monte carlo/k1D"] == pytest.approx(0.8541, rel=0.02)
    assert values["bicubic monte carlo/k1D"] != values["bicubic 224-448/k1D"]
    assert values["nearest monte carlo/k2D"] == pytest.approx(1)


def test_all_methods_judge_the_same_images_and_the_baseline_is_plain_accuracy(trained):
    """variance, Sec. "Rescaling Positional Embedding"."""
    values = rescaling(trained, sizes=[224, 352], **EVALUATION)
    assert values["224/baseline"] == accuracy(trained)["top1"]
    assert values["224/empirical-baseline"] == 0
    larger = rescale_pos_embed(trained.model, 44, antialias=False)
    assert values["352/baseline"] == accuracy(replace(trained, model=larger), image_size=44)["top1"]
    ours = rescale_pos_embed(trained.model, 28, calibration="constant", also_at_train_size=True)
    assert values["224/iid"] == accuracy(replace(trained, model=ours))["top1"]
    assert values["352/iid-baseline"] == pytest.approx(values["352/iid"] - values["352/baseline"])
    by_image = {name: unpack(values[f"352/{name} by image"]) for name in ("iid", "baseline")}
    assert by_image["iid"].mean() == pytest.approx(values["352/iid"] / 100)
    gained = unpack(values["352/iid-baseline by image"])
    assert (gained == by_image["iid"] - by_image["baseline"]).all()


def test_each_seed_is_judged_on_the_images_that_it_draws(trained, root):
    info = load_registry(root / "configs" / "datasets.yaml")["digits-few"]
    seeds = [replace(trained, info=info, seed=seed) for seed in (0, 1)]
    found = [rescaling(run, sizes=[224], **EVALUATION)["224/baseline by image"] for run in seeds]
    assert found == [accuracy(run)["top1 by image"] for run in seeds]
    assert found[0] != found[1]
    variances = [
        embedding_variance(run, sizes=[224], images=20, **EVALUATION)[f"{phase}/patch"]
        for run in seeds
        for phase in ("training", "224")
    ]
    assert len(set(variances)) == 4


def test_a_skipped_size_is_not_judged(trained):
    few = {**EVALUATION, "sizes": [224, 352], "images": 30}
    values, fewer = rescaling(trained, **few), rescaling(trained, **few, skipped=[352])
    assert all(values[key] == value for key, value in fewer.items() if key.startswith("224"))
    skipped = {key: value for key, value in fewer.items() if key.startswith("352")}
    assert len(skipped) == 5
    assert set(skipped.values()) == {None}


def test_sizes_are_pixels_where_no_size_of_training_is_given(trained):
    asked = EVALUATION | {"images": 20}
    of_paper = rescaling(trained, sizes=[448], **asked)
    in_pixels = rescaling(trained, sizes=[56], **asked | {"trained_at": None})
    assert {f"448/{name.partition('/')[2]}": v for name, v in in_pixels.items()} == of_paper


def test_a_model_that_only_turns_is_judged_at_larger_sizes_and_not_calibrated(trained):
    """Its rotations at 56 pixels are those of the same model built for that size."""
    small = {"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, "num_classes": 10}
    name = "vit_small_patch16_rope_mixed_224"
    torch.manual_seed(0)
    model = timm.create_model(name, img_size=28, **small).eval()
    nn.init.normal_(model.head.weight)
    larger = timm.create_model(name, img_size=56, **small).eval()
    larger.load_state_dict(model.state_dict())
    values = rescaling(replace(trained, model=model), sizes=[224, 448], **EVALUATION)
    judged = {name for name, value in values.items() if value is not None}
    assert judged == {f"{size}/baseline{end}" for size in (224, 448) for end in ("", " by image")}
    at_448 = accuracy(replace(trained, model=larger), image_size=56)
    assert values["448/baseline by image"] == at_448["top1 by image"]
    assert model.patch_embed.grid_size == (7, 7)


def test_a_part_of_the_images_is_spread_over_the_split_and_batches_do_not_matter(trained):
    few = {**EVALUATION, "sizes": [224], "images": 30}
    assert rescaling(trained, **few) == rescaling(trained, **{**few, "batch_size": 7})
    labels = [
        build(trained.info, "val", trained.data_root)[index * 600 // 30][1] for index in range(30)
    ]
    assert len(set(labels)) > 5


@pytest.mark.parametrize(
    ("measure", "options"), [(rescaling, {}), (amplification, {"factors": [0.8]})]
)
def test_what_was_killed_goes_on_behind_the_last_batch(
    trained, monkeypatch, tmp_path, measure, options
):
    trained, args = replace(trained, folder=tmp_path), {**EVALUATION, **options, "images": 40}
    whole = measure(trained, sizes=[224, 352], **args)  # three batches at each size
    read, batches = [], measures._test_batches

    def dying(*args, until=None):
        for batch in batches(*args):
            if len(read) == until:
                raise KeyboardInterrupt
            read.append(len(batch[1]))
            yield batch

    monkeypatch.setattr(measures, "_test_batches", partial(dying, until=4))
    with keeping("code"), pytest.raises(KeyboardInterrupt):
        measure(trained, sizes=[224, 352], **args)
    monkeypatch.setattr(measures, "_test_batches", dying)
    read.clear()
    with keeping("code"):
        assert measure(trained, sizes=[224, 352], **args) == whole
        assert read == [8, 16, 8]  # the last batch at 224 is no whole one
        other = measure(trained, sizes=[352], **{**args, "mode": "nearest"})
    assert other == measure(trained, sizes=[352], **{**args, "mode": "nearest"})


def test_the_sweep_contains_the_baseline_and_the_papers_method(trained):
    args = {**EVALUATION, "sizes": [352]}
    methods = rescaling(trained, **args)
    swept = amplification(trained, factors=[0.8, 1.0, 1.1707977], **args)
    assert swept["352/1.00"] == methods["352/baseline"]
    assert swept["352/1.17"] == methods["352/iid"]
    assert swept["352/0.80"] != swept["352/1.17"]
    assert swept["352/1.17-1.00"] == methods["352/iid-baseline"]
    assert swept["352/1.00-1.00"] == 0


def test_sizes_that_are_no_whole_number_of_pixels_are_refused(trained):
    with pytest.raises(VitrailError, match="test size 225"):
        rescaling(trained, sizes=[225], **EVALUATION)


def test_the_patch_variance_is_that_of_all_patches_together(trained):
    """variance, Eq. 1, Eq. 3."""
    values = embedding_variance(trained, sizes=[224], images=20, **EVALUATION)
    for split, phase in (("train", "training"), ("val", "224")):
        dataset = build(trained.info, split, trained.data_root)
        chosen = [index * len(dataset) // 20 for index in range(20)]
        if split == "train":
            transform = train_transform(trained.recipe, trained.info)
            samples = TrainingSamples(dataset, transform, trained.seed)
            images = [samples[0, index][0] for index in chosen]
        else:
            transform = eval_transform(trained.recipe, trained.info)
            images = [transform(dataset[index][0]) for index in chosen]
        with torch.no_grad():
            embedded = trained.model.patch_embed(torch.stack(images))
        assert values[f"{phase}/patch"] == pytest.approx(
            embedded.var(correction=0).item(), rel=1e-4
        )


def test_the_position_variance_follows_the_calibration(trained):
    """variance, Eq. 2, Eq. 4."""
    values = embedding_variance(trained, sizes=[224, 448], images=4, **EVALUATION)
    unscaled = patch_positions(trained.model).var(correction=0).item()
    assert values["training/iid"] == values["224/baseline"] == pytest.approx(unscaled)
    assert values["224/iid"] == pytest.approx(unscaled * 1.1707977**2)
    assert values["448/baseline"] < 0.8 * unscaled
    assert values["448/iid"] == pytest.approx(values["448/baseline"] * 1.1707977**2)
    assert values["448/empirical"] == pytest.approx(unscaled, rel=1e-4)


def test_the_position_maps_are_variances_over_channels(trained):
    values = position_maps(trained, size=448, trained_at=224, mode="bicubic", antialias=False)
    grid = patch_positions(trained.model)
    for row, column in ((0, 0), (3, 5)):
        expected = grid[0, :, row, column].var(correction=0).item()
        assert values["map P"][row][column] == pytest.approx(expected)
    assert torch.tensor(values["map iid"]).shape == (14, 14)
    assert values["P/ratio"] == 1
    assert values["empirical/ratio"] == pytest.approx(1, rel=1e-4)
    assert values["baseline/ratio"] == values["baseline/variance"] / values["P/variance"]


@pytest.mark.parametrize("ratio", [0.01, 1.0, 400.0])
def test_the_gradient_of_a_normalised_sum_is_a_projection_over_its_deviation(ratio):
    """variance, Sec. "Problem Statement": (I - 11'/n - zz'/n) / sqrt(Var[X+P])."""
    channels = 12
    values = normalisation_gradient(CPU, channels, [ratio])
    assert values[f"{ratio:g}/gradient"] == pytest.approx((1 + ratio) ** -0.5, rel=1e-12)
    assert values[f"{ratio:g}/exact"] == pytest.approx((1 + ratio) ** -0.5, rel=1e-12)

    total = torch.randn(channels, dtype=torch.float64, requires_grad=True)
    gradient = torch.autograd.functional.jacobian(
        lambda sum_: nn.functional.layer_norm(sum_, (channels,), eps=0), total
    )
    z, one = (total - total.mean()) / total.std(correction=0), torch.ones_like(total)
    projection = torch.eye(channels) - (torch.outer(one, one) + torch.outer(z, z)) / channels
    torch.testing.assert_close(gradient, projection / total.std(correction=0))


def test_the_gradient_falls_with_the_deviation_of_the_patches_only_where_they_dominate():
    """variance, Sec. "Problem Statement"."""
    values = normalisation_gradient(CPU, 64, [0.01, 0.04, 100, 400])
    assert values["400/gradient"] / values["100/gradient"] == pytest.approx(0.5, abs=0.01)
    assert values["0.04/gradient"] / values["0.01/gradient"] > 0.98


def test_upsampling_keeps_the_mean():
    """variance, Theorem 1: E[UP(v)] = E[v]."""
    cases = {"any": {"old": 14, "new": 54}, "antialiased": {"old": 14, "new": 9, "antialias": True}}
    sampled = {"case": "any", "maps": 1}
    values = upsampling(CPU, MODES, cases, sampled)
    means = [values[f"{mode} {case}/mean"] for mode in MODES for case in cases]
    assert means == pytest.approx([1] * 6, abs=1e-12)
