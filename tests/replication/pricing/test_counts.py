"""What models and measures are counted with is what they really are and take."""

from collections import Counter

import pytest
import torch
from timm.layers import PatchEmbed

from replication.config.functions import import_function
from replication.config.recipes.classification import ClassificationRecipe
from replication.context import Trained
from replication.images.opening import build
from replication.pricing.counts import (
    COUNTED,
    COUNTED_SCALES,
    count_model,
    images_passed,
    model_key,
    models_of,
    passes_of,
    read_counted,
    write_counted,
)
from replication.training.model_factory import build_model
from tests.conftest import catalog_of
from tests.replication.pricing.conftest import recipe_of
from vitrail.errors import VitrailError

IMAGES = 6
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


def test_flops_and_parameters_of_vit_small_are_those_of_its_closed_form():
    n, d, depth = 197, 384, 12
    block = 2 * n * 12 * d**2 + 4 * n**2 * d  # four projections, an MLP of ratio 4; two products
    embedding, head = 2 * 196 * 3 * 16**2 * d, 2 * d * 1000
    cost = count_model(recipe_of("vit_small_patch16_224"), 1000)
    assert cost.forward_flops == depth * block + embedding + head == 9_197_764_608
    assert cost.parameters == 22_050_664


@pytest.mark.slow
def test_the_file_has_every_model_that_a_plan_of_the_papers_prices_and_no_other(root):
    """A paper without published results may leave its models to be counted when they are priced."""
    published = {folder.name for folder in (root / "results" / "published").glob("*/*/")}
    keys = {
        model_key(recipe, run.dataset.classes): run.paper
        for scale in COUNTED_SCALES
        for _, run, recipe in models_of(catalog_of(scale))
    }
    known = read_counted(root).keys()
    assert known <= keys.keys()
    assert {key for key, paper in keys.items() if paper in published} <= known


@pytest.mark.slow
def test_its_counts_are_those_of_todays_code(root):
    """One recipe of each registered model at scale small is counted again."""
    written = read_counted(root)
    models = {run.recipe.model.name: run for run in catalog_of("small").runs.values()}
    for run in models.values():
        cost = count_model(run.recipe, run.dataset.classes)
        assert written[model_key(run.recipe, run.dataset.classes)] == cost
        assert cost.forward_flops > cost.parameters


def test_published_weights_and_the_way_to_drop_add_nothing(root):
    plain = recipe_of("vit_small_patch16_224")
    published = plain.model_copy(
        update={"model": plain.model.model_copy(update={"pretrained": True})}
    )
    assert model_key(published, 10) == model_key(plain, 10)
    assert count_model(published, 10) == count_model(plain, 10)


def test_another_model_size_head_or_option_is_counted_anew(root):
    full = catalog_of("full")
    segmenter = full.paper("shift").run("swin_upernet-ade20k-standard").recipe
    other = segmenter.model_copy(update={"options": {"crop_size": (256, 256)}})
    keys = {model_key(segmenter, 150), model_key(segmenter, 19), model_key(other, 150)}
    recipe = recipe_of("vit_small_patch16_224")
    larger = recipe.model_copy(update={"data": recipe.data.model_copy(update={"image_size": 256})})
    deeper = recipe_of("vit_small_patch16_224", depth=13)
    keys |= {model_key(changed, 10) for changed in (recipe, larger, deeper)}
    assert len(keys) == 6
    longer = recipe.model_copy(
        update={"schedule": recipe.schedule.model_copy(update={"epochs": 9})}
    )
    assert model_key(longer, 10) == model_key(recipe, 10)


def test_counts_are_read_as_they_are_written(catalog):
    here = catalog("full")
    run = here.paper("tiny").run("plain")
    write_counted([here])
    cost = count_model(run.recipe, run.dataset.classes)
    assert read_counted(here.root)[model_key(run.recipe, run.dataset.classes)] == cost
    (here.root / COUNTED).write_text("key,recipe,parameters,forward_flops\na,b,c,d\n")
    with pytest.raises(VitrailError, match="counts"):
        read_counted(here.root)


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


def test_a_number_of_passes_may_be_computed():
    assert passes_of("replication.papers.octic.rotation:accuracy_of_views", {}) == {1: 32}


def test_what_has_no_rule_has_no_number_of_images():
    measured = catalog_of("full").paper("octic").measurement("learned_filters", "d8-l")
    silent = "replication.papers.octic.figure_data:cayley"
    assert images_passed(measured.model_copy(update={"function": silent})) is None


def test_images_are_as_many_as_the_measure_takes_by_default():
    """Kernel SHAP of position takes 32 images of the validation split, if not told otherwise."""
    measurement = catalog_of("full").paper("position").measurement("kernel_shap", "svhn-ape")
    assert "images" not in measurement.args
    told = measurement.model_copy(update={"args": {**measurement.args, "images": 32}})
    assert images_passed(measurement) == images_passed(told)


@pytest.mark.parametrize("scale", ["full", "laptop"])
@pytest.mark.parametrize("paper", ["position", "shift", "variance"])
def test_every_evaluation_of_these_papers_has_a_price(paper, scale):
    here = catalog_of(scale)
    taken = here.measurements_of(*here.paper(paper).artifacts.values())
    functions = {measurement.function: measurement for measurement in taken if measurement.run}
    assert [name for name, each in functions.items() if images_passed(each) is None] == []
