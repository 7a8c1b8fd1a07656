"""The price of an evaluation is of the forward passes that the measure really takes."""

import json
from collections import Counter

import pytest
import torch
from timm.layers import PatchEmbed

from replication.config.functions import import_function
from replication.config.recipes.classification import ClassificationRecipe
from replication.context import Trained
from replication.images.opening import build
from replication.plan.catalog import load_catalog
from replication.pricing.cost import (
    Costs,
    ModelCost,
    evaluation_seconds,
    kept_bytes,
    load_devices,
    passes_of,
)
from replication.training.model_factory import build_model
from tests.conftest import catalog_of

COUNTED = ModelCost(parameters=60_000_000, forward_flops=12_300_000_000, outputs=1000)
IMAGES = 6
BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
TEST_SIZES = {"trained_at": 8, "mode": "bicubic", "antialias": False, "batch_size": 4}
ARGUMENTS = [
    ("replication.measures.accuracy:accuracy", {}),
    ("replication.papers.octic.rotation:rotated_accuracy", {}),
    ("replication.measures.consistency:circular_consistency", {}),
    ("replication.measures.consistency:circular_consistency", {"pairs": 3, "max_offset": 0.5}),
    (
        "replication.measures.consistency:circular_consistency",
        {"conditions": {"far": {}, "near": {"max_offset": 0.1}, "flipped": {"flip": "vertical"}}},
    ),
    ("replication.measures.consistency:standard_consistency", {"max_shift": 32}),
    ("replication.measures.consistency:standard_consistency", {"modes": ["zero"], "pairs": 2}),
    ("replication.papers.position.measures:position_bias", {"permutations": 2}),
    ("replication.papers.position.measures:position_bias", {}),
    (
        "replication.papers.position.measures:estimator_spread",
        {
            "estimates": 2,
            "permutations": [1, 2],
            "paired_batches": [2, 6],
            "batch_size": 4,
            "reference": 4,
        },
    ),
    ("replication.measures.consistency:worst_shift", {"shifts": 3}),
    ("replication.measures.consistency:worst_shift", {}),
    (
        "replication.papers.variance.measures:rescaling",
        {"sizes": [8, 12, 16], "skipped": [12], **TEST_SIZES},
    ),
    (
        "replication.papers.variance.measures:amplification",
        {"sizes": [16], "factors": [0.5, 1.0, 2.0], **TEST_SIZES},
    ),
    ("replication.papers.variance.measures:embedding_variance", {"sizes": [8, 16], **TEST_SIZES}),
    (
        "replication.papers.variance.measures:position_maps",
        {key: value for key, value in TEST_SIZES.items() if key != "batch_size"} | {"size": 16},
    ),
]


@pytest.fixture
def trained(registry, tmp_path):
    args = {"img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
    recipe = ClassificationRecipe.model_validate(
        {
            "model": {"name": "vit_tiny_patch16_224", "args": args},
            "data": {"dataset": "digits", "image_size": 8, "crop_pct": 0.7},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 8, "micro": 8},
        }
    )
    info = registry["digits"]
    model = build_model(recipe, 10).eval()
    with torch.no_grad():  # one prediction, so that no image is done with before the last view
        model.head.bias[build(info, "val", tmp_path)[0][1]] += 100
    return Trained("cpu", tmp_path, 0, recipe, info, model)


@pytest.mark.parametrize(("function", "arguments"), ARGUMENTS)
def test_as_many_images_pass_as_the_rule_says(trained, monkeypatch, function, arguments):
    passed, forward = Counter(), PatchEmbed.forward

    def counted(self, images):
        passed[images.shape[-1] / 8] += len(images)
        return forward(self, images)

    monkeypatch.setattr(PatchEmbed, "forward", counted)
    limited = {} if function.endswith((":accuracy", ":position_maps")) else {"images": IMAGES}
    torch.manual_seed(0)
    import_function(function, "test")(trained, **arguments, **limited)
    images = IMAGES if limited else trained.info.val_images
    facts = {"images": images, "train_images": images, "side": 8}
    expected = passes_of(function, {**arguments, **facts})
    assert passed == {size: n * images for size, n in expected.items() if n}


def test_the_range_is_from_forward_passes_to_a_training_on_as_many_images(catalog):
    here = catalog("full")
    measurement = here.paper("tiny").measurement("accuracy", "plain")
    device = load_devices(here.root)["a100"]
    costs = Costs(here, device.model_copy(update={"sustained": (2e12, 4e12)}))
    run = measurement.run
    flops = run.dataset.val_images * costs.model(run).forward_flops
    seconds = evaluation_seconds(measurement, costs)
    assert (seconds.low, seconds.high) == pytest.approx((flops / 4e12, 3 * flops / 2e12))


def test_a_larger_test_size_costs_what_the_model_costs_there(root):
    """Attention grows with the square of the tokens, so the cost by more than their number."""
    here = catalog_of("full")
    measurement = here.paper("variance").measurement("rescaling", "augreg-vit_s")
    costs = Costs(here, load_devices(root)["a100"])
    one = measurement.args | {"sizes": [224]}
    two = measurement.args | {"sizes": [448]}
    small, large = (evaluation_seconds(_with(measurement, args), costs).low for args in (one, two))
    assert 4.2 * small < large < 6 * small


def _with(measurement, args):

    return measurement.model_copy(update={"args": args})


def test_what_has_no_rule_is_not_priced(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measured = here.paper("octic").measurement("learned_filters", "d8-l")
    silent = measured.model_copy(update={"function": "replication.papers.octic.figure_data:cayley"})
    assert evaluation_seconds(silent, costs) is None


def test_probes_are_priced_with_the_images_that_they_learn_from(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measurement = here.paper("octic").measurement("voc2012", "dinov2-vit-l")
    flops = (1464 + 1449) * costs.model(measurement.run).forward_flops
    seconds = evaluation_seconds(measurement, costs)
    assert seconds.low == pytest.approx(flops / costs.device.sustained[1])


def test_what_probes_keep_is_priced_by_the_features_of_all_images(root):
    """An image of ImageNet-1K takes 1,024 numbers of ViT-L in half precision, label and place."""
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measurement = here.paper("octic").measurement("knn", "dinov2-vit-l")
    images = 1281167 + 50000
    assert costs.model(measurement.run).outputs == 1024
    tokens = images * (16 + 1024 * BYTES[measurement.args["precision"]])
    assert kept_bytes(measurement, costs) == (tokens + 8 + 50000)
    silent = here.paper("octic").measurement("voc2012", "dinov2-vit-l")
    assert kept_bytes(silent, costs) == 0


def test_every_evaluation_of_a_table_fits_in_the_time_that_its_job_asks_for(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    artifacts = [here.artifact("octic", f"table{number}") for number in (3, 7, 9)]
    measured = [measurement for measurement in here.measurements_of(*artifacts) if measurement.run]
    assert len(measured) > 36 + 24
    for measurement in measured:
        limit = 60 * here.resources(measurement).runtime
        assert 0 < evaluation_seconds(measurement, costs).high < limit, (
            measurement.name,
            measurement.run.name,
        )


@pytest.mark.parametrize("scale", ["full", "laptop"])
@pytest.mark.parametrize("paper", ["position", "shift", "variance"])
def test_every_evaluation_of_these_papers_has_a_price(root, monkeypatch, paper, scale):
    """Whatever a forward pass costs: the measures know how many they take."""
    monkeypatch.setattr("replication.pricing.cost.count_model", lambda *_: COUNTED)
    here = load_catalog(scale=scale)
    costs = Costs(here, load_devices(root)["a100"])
    taken = here.measurements_of(*here.paper(paper).artifacts.values())
    functions = {measurement.function: measurement for measurement in taken if measurement.run}
    assert [
        name
        for name, measurement in functions.items()
        if evaluation_seconds(measurement, costs) is None
    ] == []


def test_two_views_of_one_photograph_cost_two_passes_whatever_is_judged(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measurement = here.paper("shift").measurement("token_consistency", "swin_t-cifar10-circular")
    flops = 2 * costs.model(measurement.run).forward_flops
    assert evaluation_seconds(measurement, costs).low == pytest.approx(
        flops / costs.device.sustained[1]
    )


def test_a_plan_of_several_targets_counts_what_they_share_once(vitrail, catalog, fine_tuning):
    figures = [
        json.loads(vitrail("plan", *names, "--scale", "full", "--json").out)
        for names in (["tiny_table1"], ["tiny_table2"], ["tiny_table1", "tiny_table2"])
    ]
    one, other, both = figures
    assert both["targets"] == ["tiny_table1", "tiny_table2"]
    assert both["nodes"]["train"]["missing"] == 3  # plain, mixup, tuned
    sums = [one[key]["all"][0] + other[key]["all"][0] for key in HOURS]
    assert all(0 < both[key]["all"][0] < total for key, total in zip(HOURS, sums, strict=True))
    assert both["evaluation_hours"]["not_priced"] == []


HOURS = ("training_hours", "evaluation_hours")


def test_evaluations_that_are_taken_are_not_still_to_do(vitrail, catalog):
    path = catalog("full").paper("tiny").measurement("accuracy", "plain").path
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    hours = json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)
    (all_, to_do) = (hours["evaluation_hours"][key][1] for key in ("all", "to_do"))
    assert to_do == pytest.approx(all_ / 2)


def test_published_weights_are_priced_in_hours_of_evaluation(monkeypatch, vitrail, tracked):
    monkeypatch.chdir(tracked)
    monkeypatch.setattr("replication.pricing.cost.count_model", lambda *_: COUNTED)
    done = vitrail("plan", "octic_published", "variance_table3", "--scale", "full")
    assert "octic_published, variance_table3 at scale full" in done.out
    assert "7 runs of zero epochs" in done.out
    assert "Evaluation hours of one NVIDIA A100" in done.out
    assert "octic/rotation" in done.out
    assert "variance/rescaling" in done.out


def test_a_number_of_passes_may_be_computed():
    assert passes_of("replication.papers.octic.rotation:accuracy_of_views", {}) == {1: 32}
