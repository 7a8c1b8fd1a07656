"""One sweep says how much position counts, and in which samples; an embedding what it learned."""

import itertools
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from replication.config.datasets import load_registry
from replication.datasets import arrays
from replication.datasets.arrays import Digits
from replication.datasets.placed_images import in_corners
from replication.images.opening import build
from replication.images.transforms import eval_transform
from replication.measures.accuracy import accuracy
from replication.papers.position.measures import (
    controlled_test,
    estimator_spread,
    greater,
    learned,
    paired_bias,
    position_bias,
)
from tests.trained_on_digits import trained_on_digits
from vitrail.errors import VitrailError

__all__ = ["trained_on_digits"]
GROUPS = [
    f"{outcome}/{kind}"
    for outcome in ("correct", "incorrect")
    for kind in ("dependent", "independent")
]


class Readout(nn.Module):
    """A linear classifier of four quadrants, whose weights belong to the quadrants' positions."""

    positions = 4

    def __init__(self, weights):
        super().__init__()
        self.weights = weights  # (4, d, classes)
        self.eval()

    def forward(self, images, permutation=None):
        weights = self.weights if permutation is None else self.weights[permutation]
        axes = "bnd,...ndc->bc" if permutation is None else "bnd,bndc->bc"
        # Rounded, or the order of the sums would tell permutations apart.
        return torch.einsum(axes, quadrants(images), weights).round(decimals=9)


def quadrants(images):
    """``(B, 3, 16, 16)`` as ``(B, 4, 192)``."""
    cut = images.double().unfold(2, 8, 8).unfold(3, 8, 8)
    return cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@pytest.fixture(scope="module")
def info(root):
    """The digits, but each in a random corner of a frame of 16 pixels: two classes become eight."""

    def in_frames(folder, split):
        scans = Digits(split)
        return in_corners(scans.images, scans.labels, split)

    entry = load_registry(root / "configs" / "datasets.yaml")["digits"]
    placed = {"loader": "replication.datasets.arrays:digits_in_corners", "classes": 16}
    statistics = {"mean": (0.07632,) * 3, "std": (0.22971,) * 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "digits_in_corners", in_frames, raising=False)
        yield entry.model_copy(update=placed | statistics)


@pytest.fixture(scope="module")
def weights(root, info):
    """The ridge regression of the classes of the digits in corners."""
    train = build(info, "train", root)
    pixels = torch.stack([torch.tensor(np.array(image)) for image, _ in train])
    mean, std = (255 * torch.tensor(statistic) for statistic in (info.mean, info.std))
    images = ((pixels - mean) / std).permute(0, 3, 1, 2)
    x = quadrants(images).flatten(1)
    targets = nn.functional.one_hot(torch.as_tensor(train.labels)).double()
    solution = torch.linalg.solve(x.T @ x + 100 * torch.eye(x.shape[1]), x.T @ targets)
    return solution.view(4, 192, 16)


@pytest.fixture
def placed(info, trained_on_digits):
    """Make a run on the digits in corners of a given model."""

    def make(model, seed=0):
        return replace(trained_on_digits(model, seed, image_size=16), info=info)

    return make


@pytest.fixture
def readout(placed, weights):
    return placed(Readout(weights))


def test_the_readout_sees_the_images_that_it_was_fitted_to(readout):
    transform = eval_transform(readout.recipe, readout.info)
    assert transform(build(readout.info, "val", readout.data_root)[0][0]).shape == (3, 16, 16)
    assert accuracy(readout)["top1"] > 70


def test_accuracy_is_that_of_its_own_measure(readout):
    """position, Sec. 5.2."""
    values = position_bias(readout, permutations=1)
    assert values["top1"] == pytest.approx(accuracy(readout)["top1"])
    assert values["ci_low"] < values["p_shap"] < values["ci_high"]
    # A mean's 95 % interval is four of its standard errors wide; the background varies too.
    error = values["std"] / sqrt(values["images"] * values["top1"] / 100)
    assert values["ci_high"] - values["ci_low"] == pytest.approx(4 * error, rel=0.5)
    assert "gamma" not in values


def test_the_papers_protocol_and_the_sweep_see_about_the_same_bias(readout):
    """position, App. E."""
    found = paired_bias(readout, images=200)["p_shap"]
    assert found == pytest.approx(position_bias(readout, images=200)["p_shap"], abs=0.03)
    assert found > 0.05


def test_a_model_that_is_never_right_has_no_p_shap(placed, weights):
    wrong = torch.cat([weights, torch.full((4, 192, 1), 0.0)], dim=2)
    run = placed(Readout(wrong))
    run.model.register_forward_hook(lambda _, __, logits: logits - 100 * (torch.arange(17) < 16))
    values = controlled_test(run, permutations=[1], images=60)
    assert values["top1"] == 0
    unknown = ("p_shap", "ci_low", "ci_high", "interaction", "std")
    unknown += ("k1/p_shap", "k1/correct/p_value")
    assert [values[key] for key in unknown] == [None] * len(unknown)
    assert values["correct/dependent/mean"] is None
    assert paired_bias(run, images=60) == {"p_shap": None}
    with pytest.raises(VitrailError, match="none of 60 images correctly"):
        estimator_spread(run, permutations=[1], paired_batches=[], images=60, reference=1)


def test_one_permutation_suffices_to_find_the_samples_that_depend_on_position(readout):
    """position, Sec. 5.1."""
    values = controlled_test(readout, permutations=[1, 4], images=300)
    assert values["k1/p_value"] < 0.01
    assert values["k1/correct/p_value"] < 0.01
    assert values["k4/p_value"] < values["k1/p_value"]
    assert values["correct/dependent/mean"] > values["correct/independent/mean"] + 0.1
    assert values["p_shap"] == values["k4/p_shap"] != values["k1/p_shap"]


def test_the_groups_are_all_samples_once(readout):
    """position, App. D."""
    values = controlled_test(readout, permutations=[1], bins=8)
    assert values["edges"] == [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1]
    sizes = {group: values[f"{group}/images"] for group in GROUPS}
    assert all(sum(values[f"{group}/histogram"]) == size for group, size in sizes.items())
    assert sum(sizes.values()) == values["images"] == 599
    dataset = build(readout.info, "val", readout.data_root)
    dependent = sizes["correct/dependent"] + sizes["incorrect/dependent"]
    assert dependent == sum(label < 8 for label in dataset.labels)
    right = sizes["correct/dependent"] + sizes["correct/independent"]
    assert 100 * right / 599 == pytest.approx(values["top1"])
    means = [
        sizes[group] * values[f"{group}/mean"]
        for group in ("correct/dependent", "correct/independent")
    ]
    assert sum(means) / right == pytest.approx(values["p_shap"])


def test_a_model_that_does_not_look_at_position_fails_the_test(placed, weights):
    blind = weights.mean(0, keepdim=True).expand(4, -1, -1)
    values = controlled_test(placed(Readout(blind)), permutations=[1], bins=4, images=100)
    assert values["p_shap"] < 1e-12
    assert abs(values["interaction"]) < 1e-12
    assert values["k1/p_value"] > 0.01
    for group in GROUPS:
        assert values[f"{group}/histogram"] == [values[f"{group}/images"], 0, 0, 0]


def test_only_a_position_dataset_can_be_tested(trained_on_digits, weights):
    with pytest.raises(VitrailError, match="samples of 'digits' depend on position is not known"):
        controlled_test(trained_on_digits(Readout(weights)))


def test_a_test_of_no_sweep_is_refused(readout):
    with pytest.raises(VitrailError, match="permutations is empty"):
        controlled_test(readout, permutations=[])


def test_estimates_differ_less_the_more_permutations_they_take(readout):
    """position, App. E."""
    asked = {"estimates": 4, "permutations": [1, 16], "images": 64, "reference": 64}
    values = estimator_spread(readout, **asked)
    assert 0 < values["sweep 16/std"] < values["sweep 1/std"]
    assert values["sweep 16/mean"] == pytest.approx(values["paired 32/mean"], abs=0.05)
    passes = [values[f"{name}/passes"] for name in ("sweep 1", "sweep 16", "paired 32")]
    assert passes == [2, 17, 1 + 16 + 2]
    assert values["seconds"] > 0
    assert values["sweep 16/cost"] > 1
    assert (
        values["sweep 1/bias/plain"] == values["sweep 1/bias"] > values["sweep 16/bias/plain"] > 0
    )
    assert abs(values["sweep 16/bias"]) < values["sweep 16/bias/plain"]
    pairs = values["paired 32/mean"] - values["reference"]
    assert values["paired 32/bias"] == values["paired 32/bias/plain"] == pytest.approx(pairs)


def test_the_estimates_of_two_seeds_of_a_run_are_others(placed, weights):
    runs = [placed(Readout(weights), seed) for seed in (0, 0, 1)]
    asked = {
        "estimates": 2,
        "permutations": [1],
        "paired_batches": [],
        "images": 64,
        "reference": 1,
    }
    first, again, other = (estimator_spread(run, **asked)["sweep 1/mean"] for run in runs)
    assert first == again != other


def test_a_single_estimate_has_no_spread(readout):
    with pytest.raises(VitrailError, match="estimates is 1"):
        estimator_spread(readout, estimates=1)


@pytest.mark.parametrize("embedding", ["none", "ape", "sin", "rpe", "irpe", "cape", "ff"])
def test_an_embedding_without_factor_and_angles_has_learned_neither(micro, embedding):
    assert learned(micro(embedding)).keys() <= {"norm"}


def test_the_norm_is_of_what_is_added_to_a_patch(micro):
    plain, auto = micro("ape"), micro("auto-ape")
    patches = plain.pos_embed.layout.num_patches
    weight = torch.zeros_like(plain.pos_embed.weight)
    weight[:-patches] = 7  # of the class token, if there is one
    weight[-1, :2] = torch.tensor([3.0, 4.0])  # one patch of norm 5
    plain.pos_embed.weight.data = weight
    auto.pos_embed.embedding.weight.data = weight.clone()
    auto.pos_embed.gamma.data = torch.tensor(-2.0)
    assert learned(plain)["norm"] == pytest.approx(5 / patches**0.5)
    assert learned(auto)["norm"] == pytest.approx(10 / patches**0.5)


def test_a_factor_counts_by_its_size(micro):
    model = micro("auto-ape")
    values = learned(model)
    assert (values["gamma"], values["gamma/signed"], values["gamma/layers"]) == (0.5, 0.5, [0.5])
    nn.init.constant_(model.pos_embed.gamma, -0.25)
    values = learned(model)
    expected = (0.25, -0.25, [-0.25])
    assert (values["gamma"], values["gamma/signed"], values["gamma/layers"]) == expected


def test_the_factors_of_rope_are_averaged_over_layers(micro):
    model = micro("auto-rope")
    model.pos_embed.gamma.data = torch.tensor([1.0, -2.0])
    values = learned(model)
    assert values["gamma/layers"] == [1, -2]
    assert (values["gamma"], values["gamma/signed"]) == (1.5, -0.5)


def test_angles_begin_as_rope_s_whatever_its_random_axes(micro):
    plain, auto = micro("rope"), micro("auto-rope")
    assert "gamma" not in learned(plain)
    expected = (1 + 10**-0.5) / 2  # heads of 8 channels: two frequencies, and theta is 10
    assert learned(plain)["angle/layers"] == pytest.approx([expected] * 2)
    assert learned(auto)["angle"] == pytest.approx(expected / 2)  # gamma is 0.5


def test_a_factor_multiplies_the_angle(micro):
    """position, App. I."""
    model = micro("auto-rope")
    model.pos_embed.gamma.data = torch.tensor([-1.0, 3.0])
    first, second = learned(model)["angle/layers"]
    assert second == pytest.approx(3 * first)
    assert learned(model)["angle"] == pytest.approx(2 * first)


def test_a_run_of_the_paper_s_own_model_is_measured(placed, micro):
    run = placed(micro("auto-rope", num_classes=16).eval())
    values = position_bias(run, permutations=1, images=40)
    assert values["gamma"] == 0.5
    assert values["angle"] > 0
    assert (values["images"], values["passes_per_sample"]) == (40, 2)


def test_mann_whitney_is_the_share_of_orders_that_are_as_extreme():
    first, second = torch.tensor([0.9, 0.4, 0.8, 0.3]), torch.tensor([0.1, 0.5, 0.2])
    together = torch.cat([first, second])

    def wins(chosen):
        rest = [i for i in range(7) if i not in chosen]
        return sum(bool(together[i] > together[j]) for i in chosen for j in rest)

    orders = list(itertools.combinations(range(7), 4))
    extreme = sum(wins(chosen) >= wins((0, 1, 2, 3)) for chosen in orders)
    assert greater(first, second) == pytest.approx(extreme / len(orders))
    assert greater(second, first) > 0.5


def test_a_p_value_below_what_float32_holds_is_not_zero():
    dependent, independent = torch.linspace(0.5, 1, 300), torch.linspace(0, 0.4, 300)
    assert 0 < greater(dependent, independent) < 1e-90
    with pytest.raises(VitrailError, match="300 against 0 samples"):
        greater(dependent, independent[:0])


def test_a_run_is_measured_on_its_validation_split(trained_on_digits):
    torch.manual_seed(0)
    vit = VisionTransformer(8, 2, embed_dim=8, depth=1, num_heads=2, num_classes=10).eval()
    nn.init.normal_(vit.pos_embed)
    run = trained_on_digits(vit)
    values = position_bias(run, permutations=2)
    assert values["images"] == 599
    assert values["passes_per_sample"] == 3
    assert values["top1"] == pytest.approx(accuracy(run)["top1"])
    assert 0 < values["ci_low"] < values["p_shap"] < values["ci_high"] < 1
    few = position_bias(run, permutations=2, batch_size=7, images=50)
    assert few["images"] == 50
    nn.init.zeros_(vit.pos_embed)
    assert position_bias(run, permutations=2, images=50)["p_shap"] == 0
