"""The variance paper's printed facts: complete, consistent, and what can be computed again is."""

from pathlib import Path

import pytest
from torch import nn

from replication.config.paper import read_reference
from tests.conftest import catalog_of
from vitrail.variance.upsampling import axis_variance_ratio

FOLDER = Path(__file__).parents[2] / "configs" / "papers" / "variance"
PRINTED = {"table1": 5, "table2": 12, "table3": 99, "table4": 27, "table5": 8, "table6": 12}
SCALES = ["laptop", "workstation", "full"]


def printed(table):
    return read_reference(FOLDER / "reference" / f"{table}.csv")


@pytest.mark.parametrize("table", PRINTED)
def test_every_printed_value_is_there_with_its_place(table):
    cells = printed(table)
    assert len(cells) == PRINTED[table]
    assert all(cell.source.startswith(f"Table {table[-1]}, p. ") for cell in cells.values())


def test_table_1_prints_words():
    assert sorted(cell.value for cell in printed("table1").values()) == [
        "Consistent", "Consistent", "Depends on noise", "Inconsistent", "Inconsistent",
    ]  # fmt: skip


def test_table_2_is_what_torchs_interpolation_does():
    modes = {"Bicubic": "bicubic", "Bilinear": "bilinear", "Nearest Neighbor": "nearest"}
    power = {"k2D": 2, "k1D": 1, "1/sqrt(k2D)": -1, "1/sqrt(k1D)": -0.5}
    for (quantity, column), cell in printed("table2").items():
        k1d = axis_variance_ratio(224, 448, modes[column.split(" / ")[0]])
        assert round(k1d ** power[quantity], 4) == cell.value


@pytest.mark.parametrize(
    ("table", "baseline", "ours"),
    [("table3", "Baseline", "Ours"), ("table4", "UP(P)", "UP(P)/sqrt(k)")],
)
def test_every_printed_difference_is_ours_minus_the_baseline(table, baseline, ours):
    cells = printed(table)
    differences = [(row, column) for row, column in cells if column.endswith("Diff")]
    assert len(differences) == len(cells) // 3
    for row, column in differences:
        prefix = column.removesuffix("Diff")
        expected = cells[row, prefix + ours].value - cells[row, prefix + baseline].value
        assert cells[row, column].value == pytest.approx(expected, abs=1e-9)


def test_the_printed_gains_have_the_signs_that_the_text_claims():
    for (row, column), cell in printed("table3").items():
        if column.endswith("Diff"):
            assert (cell.value < 0) == (row == "224²")
    assert all(
        cell.value > 0 for (_, column), cell in printed("table4").items() if column == "Diff"
    )


@pytest.mark.parametrize("scale", SCALES)
def test_every_printed_value_has_a_cell_where_its_artifact_exists(scale):
    paper = catalog_of(scale).paper("variance")
    for name, artifact in paper.artifacts.items():
        cells = {(cell.row, cell.column) for cell in artifact.cells if cell.printed}
        assert len(cells) == PRINTED.get(name, 0)


def test_the_full_recipes_are_the_papers():
    paper = catalog_of("full").paper("variance")
    printed = [name for name in paper.recipes if not paper.without(name)]
    assert len(printed) == 8 + 12 + 3 + 3
    for name in printed:
        run = paper.run(name)
        assert paper.as_printed(name)
        if name.startswith("deit_s_upernet"):
            downloaded = name == "deit_s_upernet-ade20k"
            steps = 0 if downloaded else 160_000
            assert (run.recipe.schedule.steps, run.recipe.batch.size) == (steps, 16)
            backbone = run.recipe.model.pretrained == "deit_small_patch16_224.fb_in1k"
            assert backbone != downloaded
            continue
        if name.startswith("augreg"):
            assert run.recipe.schedule.epochs == 0
            assert run.recipe.model.pretrained
            assert run.recipe.data.normalization == "inception"
            continue
        recipe = run.recipe
        assert (recipe.optimizer.name, recipe.optimizer.lr) == ("adamw", 5e-4)
        assert (recipe.optimizer.weight_decay, recipe.label_smoothing) == (0.05, 0.1)
        assert (recipe.schedule.epochs, recipe.schedule.warmup_lr) == (300, 1e-6)
        assert (recipe.batch.size, recipe.batch.micro) == (8 * 288, 288)
        assert recipe.augmentation.auto_augment == "rand-m9-mstd0.5-inc1"
        assert (recipe.ema_decay, recipe.model.args) == (0.99996, {"drop_path_rate": 0.1})


def test_the_recipes_of_tables_5_and_6_differ_in_what_the_tables_name():
    """variance, Sec. "Effect of Mixup and Cutmix", Sec. "Configurations of Random Erasing"."""
    paper = catalog_of("full").paper("variance")
    mixed = paper.run("vit_s-mixup0.4-cutmix1.0").recipe.augmentation
    assert (mixed.mixup, mixed.cutmix, mixed.erase_prob) == (0.4, 1.0, 0.0)
    erased = paper.run("vit_b-inception-re0.50-pixel").recipe
    assert (erased.augmentation.erase_prob, erased.augmentation.erase_mode) == (0.5, "pixel")
    assert (erased.augmentation.cutmix, erased.data.normalization) == (1.0, "inception")
    assert paper.run("vit_b-default-re0.25-rand").recipe.augmentation.erase_mode == "rand"


def test_on_cifar10_tables_5_and_6_keep_the_papers_augmentation_and_average():
    """The average of weights reaches back over about as large a part of the training."""
    full, small = (catalog_of(scale).paper("variance") for scale in ("full", "small"))
    names = {
        run.name for table in ("table5", "table6") for run in small.runs_of(small.artifacts[table])
    }
    assert len(names) == 10
    for name in names:
        parts = []
        for run in (full.run(name), small.run(name)):
            steps = run.recipe.steps(run.dataset.train_images)
            parts.append(1 / (1 - run.recipe.ema_decay) / steps)
        assert parts[1] == pytest.approx(parts[0], rel=0.2)
        here, paper = (own.run(name).recipe.augmentation for own in (small, full))
        assert here == paper.model_copy(update={"crop": "random"})
        assert small.run(name).recipe.data.dataset == "cifar10-10k"


@pytest.mark.parametrize("scale", ["full", "laptop"])
def test_segmenters_are_trained_as_page_7_says(scale):
    """Crops of 512, of 1024 on Cityscapes; AdamW, 1e-2, betas 0.9 and 0.999, poly after warm-up."""
    from replication.training.segmentation.config import image_shape, load_config

    paper = catalog_of(scale).paper("variance")
    crops = {"ade20k": 512, "cityscapes": 1024, "loveda": 512}
    for dataset, crop in crops.items():
        run = paper.run(f"deit_s_upernet-{dataset}")
        config = load_config(run.recipe, run.dataset.classes)
        optimizer = config.optim_wrapper.optimizer
        assert (optimizer.type, optimizer.weight_decay) == ("AdamW", 0.01)
        assert tuple(optimizer.betas) == (0.9, 0.999)
        assert [scheduler.type for scheduler in config.param_scheduler] == ["LinearLR", "PolyLR"]
        if scale == "full":
            assert optimizer.lr == 6e-5
            assert image_shape(run.recipe) == (3, crop, crop)
            assert (
                config.model.decode_head.num_classes
                == {"ade20k": 150, "cityscapes": 19, "loveda": 7}[dataset]
            )
            assert config.model.neck.type == "MultiLevelNeck"


def test_only_the_decoder_of_the_pixelwise_segmenters_sees_no_border():
    from replication.training.segmentation.config import build_model

    paper = catalog_of("laptop").paper("variance")
    for decoder, sees in (("upernet", True), ("pixelwise", False)):
        run = paper.run(f"deit_s_{decoder}-ade20k")
        model = build_model(run.recipe, run.dataset.classes)
        kernels = [m.kernel_size for m in model.decode_head.modules() if isinstance(m, nn.Conv2d)]
        assert ((3, 3) in kernels) == model.with_neck == model.with_auxiliary_head == sees
