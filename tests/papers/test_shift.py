"""The shift paper's printed facts: complete, consistent, and what our recipes say is what it says.

Where the paper contradicts itself, the test says so: deviations.md lists the same places.
"""

from pathlib import Path

import pytest

from replication.config.paper import read_reference
from replication.config.recipes.classification import ClassificationRecipe
from replication.context import Described
from replication.measures.preprocessing import preprocessing
from replication.records.specs import by_recipe
from tests.conftest import catalog_of

FOLDER = Path(__file__).parents[2] / "configs" / "papers" / "shift"
PRINTED = {
    "table1": 64, "table2": 32, "table3": 20, "table4": 18, "table6": 10,
    "tableA1": 48, "tableA2": 56, "tableA3": 36, "tableA4": 18, "tableA5": 18,
    "table5": 16, "tableA6": 28, "tableA7": 28, "tableA8": 56,
    "pilot": 12, "tableA9": 30, "tableA10": 12, "tableA11": 32, "tableA12": 10,
}  # fmt: skip
OTHER_GRIDS = ("_drawn", "_aps", "_anchoring", "_lps", "_low_pass", "_printed")
PILOT = ("pilot", "pilot_literal", "pilot_augmented")
SCALES = ["laptop", "workstation", "full"]
MODELS = ["Swin-T", "SwinV2-T", "CvT-13", "MViTv2-T"]


def printed(table):
    return read_reference(FOLDER / "reference" / f"{table}.csv")


def value(table, row, column):
    return printed(table)[row, column].value


@pytest.fixture(scope="module")
def full():
    return catalog_of("full").paper("shift")


def classifiers(paper):
    return [
        name for name in paper.recipes if isinstance(paper.run(name).recipe, ClassificationRecipe)
    ]


# What is printed


@pytest.mark.parametrize("table", PRINTED)
def test_every_printed_value_is_there_with_its_place(table):
    cells = printed(table)
    assert len(cells) == PRINTED[table]
    place = f"Table {'1' if table == 'pilot' else table.removeprefix('table')}, p. "
    assert all(cell.source.startswith(place) for cell in cells.values())


@pytest.mark.parametrize("model", MODELS)
def test_table_3s_relative_changes_follow_from_its_throughputs_but_cvts(model):
    column = "Throughput (images/s)"
    before, after = (value("table3", row, column) for row in (model, f"A-{model} (Ours)"))
    change = value("table3", f"A-{model} (Ours)", "Relative change (%)")
    computed = 100 * (1 - after / before)
    if model == "CvT-13":
        assert (change, round(computed, 2)) == (10.69, 8.1)
    else:
        assert computed == pytest.approx(change, abs=0.0051)


def test_table_4s_deltas_are_ours_minus_the_default():
    for (row, column), cell in printed("table4").items():
        if column == "Delta (ms)":
            ours = value("table4", row, "Abs. runtime (ms)")
            plain = value(
                "table4", row.removeprefix("A. ").removesuffix(" (Ours)"), "Abs. runtime (ms)"
            )
            default = 0 if plain == "Not applied" else plain
            assert ours - default == pytest.approx(cell.value, abs=1e-9)


def test_table_a1s_changes_follow_from_its_memory_but_one_in_the_last_digit():
    wrong = {}
    for (row, column), cell in printed("tableA1").items():
        if column.endswith(", change (%)"):
            quantity = column.replace(", change (%)", " (MiB)")
            plain = row.removeprefix("A-").removesuffix(" (Ours)")
            computed = 100 * (
                value("tableA1", row, quantity) / value("tableA1", plain, quantity) - 1
            )
            if abs(computed - cell.value) > 0.0051:
                wrong[row, column] = round(computed, 2)
    assert wrong == {("A-MViTv2-T (Ours)", "Inference / Max. Reserved Memory, change (%)"): 0.66}


def test_table_6s_ends_are_table_1s_models():
    for row, label in (("A-Swin-T (Ours)", "A-Swin-T (Ours)"), ("Swin-T", "Swin-T (Default)")):
        for column in ("Top-1 Acc.", "C-Cons."):
            first = printed("table1")[row, f"Circular Shift, CIFAR10 / {column}"]
            assert value("table6", label, column) == pytest.approx(first.value, abs=0.011)


def test_table_1s_accuracies_of_swin_hardly_depend_on_the_regime_and_a_cvts_does():
    """Padding changes nothing of Swin: this speaks for Sec. A3.1, and the last against it."""

    def gap(model, dataset):
        circular, standard = (
            value("table1", model, f"{kind} Shift, {dataset} / Top-1 Acc.")
            for kind in ("Circular", "Standard")
        )
        return round(abs(circular - standard), 2)

    swins = ["Swin-T", "SwinV2-T", "A-Swin-T (Ours)", "A-SwinV2-T (Ours)"]
    assert max(gap(model, data) for model in swins for data in ("CIFAR10", "CIFAR-100")) == 0.27
    assert gap("SwinV2-T", "CIFAR10") == 0
    assert gap("A-CvT-13 (Ours)", "CIFAR-100") == 3.15


def test_tables_a9_and_a10_share_their_plain_images():
    for row in ("Swin-T (Default)", "Swin-T DA", "A-Swin-T (Ours)"):
        for a9, a10 in (("Top-1 Acc.", "Top-1 Acc.(%)"), ("C-Cons.", "C-Cons.(%)")):
            unflipped = value("tableA10", row, f"Unflipped / {a10}")
            assert value("tableA9", row, f"max = 0 / {a9}") == unflipped


@pytest.mark.parametrize("model", MODELS)
def test_table_a11s_defaults_lose_consistency_with_the_range_and_are_not_table_1s(model):
    ranges = [value("tableA11", model, f"Offset ∈ {{0, ..., {n}}}") for n in (8, 16, 24, 32)]
    assert ranges == sorted(ranges, reverse=True)
    anywhere = printed("table1")[model, "Circular Shift, CIFAR10 / C-Cons."]
    # The last range is every shift there is, so it should be Table 1's number.
    assert abs(ranges[-1] - anywhere.value) > 2 * anywhere.std


def test_table_a7_alone_contradicts_its_text():
    """Sec. A3.2 resizes to 1,792 x 448 and 2,048 x 512, in training and in testing."""
    for table, side in (("tableA6", 1792), ("tableA7", 2048), ("tableA8", 2048)):
        for (row, column), cell in printed(table).items():
            if row == "Resize (long side)":
                misprint = table == "tableA7" and column.endswith("Test Set")
                assert cell.value == (2042 if misprint else side)


def test_table_5s_adaptive_segmenters_are_ahead_in_all_columns():
    for (row, column), cell in printed("table5").items():
        if row.endswith("(Ours)"):
            plain = row.removeprefix("A-").removesuffix(" (Ours)")
            assert cell.value > value("table5", plain, column)


def test_the_preprocessing_tables_augment_in_training_only():
    for table in ("tableA2", "tableA3", "tableA4", "tableA5"):
        for (row, column), cell in printed(table).items():
            size = row.startswith("Resize") or row == "Center Crop"
            if column.endswith("Test Set") and not size:
                assert cell.value == (row == "Normalization")


# What our configuration says


@pytest.mark.parametrize("scale", SCALES)
def test_every_printed_value_has_a_cell_where_its_artifact_exists(scale):
    paper = catalog_of(scale).paper("shift")
    for name, artifact in paper.artifacts.items():
        cells = [cell for cell in artifact.cells if cell.printed]
        assert len(cells) == PRINTED.get(name, 0)
        unmeasured = [cell.row for cell in cells if not cell.records]
        assert unmeasured == (["Window Selection"] if name == "table4" else [])


@pytest.mark.parametrize("table", ["tableA2", "tableA3", "tableA4", "tableA5"])
def test_training_preprocesses_as_the_paper_prints_but_for_the_long_side(full, table):
    """shift, Sec. A3.1: "256 x 256" is read as the short side, see deviations.md."""
    artifact = full.artifacts[table]
    for cell in artifact.cells:
        run = full.measurement_of(cell).described
        assert run.recipe.data.dataset == "imagenet"
        described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
        if cell.printed:
            shape_kept = cell.row == "Resize (long side)"
            expected = 0 if shape_kept else cell.printed.value
            assert preprocessing(described)[cell.key] == expected, (cell.row, cell.column)
        assert cell.comparable


def test_tables_a2_to_a5_print_squares():
    for table in ("tableA2", "tableA3", "tableA4", "tableA5"):
        for (row, column), cell in printed(table).items():
            if row == "Resize (short side)":
                assert cell.value == value(table, "Resize (long side)", column)


def test_randaugment_draws_from_one_operation_more_than_sec_a3_1_lists(full):
    run = full.run("swin_t-imagenet-standard")
    described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
    listed = (
        "AutoContrast, Equalize, Invert, Rotate, Posterize, Solarize, ColorIncreasing, "
        "ContrastIncreasing, BrightnessIncreasing, SharpnessIncreasing, Shear-x, Shear-y, "
        "Translate-x, Translate-y"
    )
    drawn_from = preprocessing(described)["train/randaugment/operations"]
    assert drawn_from == len(listed.split(", ")) + 1  # SolarizeAdd


def test_the_parts_of_proofs_are_the_models_of_table_6(full):
    models = full.measurement("invariance", None).args["models"]
    for part in ("", "_no_token", "_no_wsa", "_no_pmerge"):
        recipe = full.run(f"a_swin_t{part}-cifar10-circular").recipe
        trained = {k: v for k, v in recipe.model.args.items() if k != "drop_path_rate"}
        assert models[f"a_swin_t{part}"] == {"name": recipe.model.name, "args": trained}


@pytest.mark.parametrize("scale", ["laptop", "full"])
def test_the_segmenters_of_proofs_are_table_5s_at_every_scale(full, scale):
    paper = catalog_of(scale).paper("shift")
    measured = paper.measurements_of(paper.artifacts["proofs"])
    runs = [measurement.described for measurement in measured]
    recipes = [run.recipe for run in runs if run]
    assert len(recipes) == 5
    assert all(
        recipe in [run.recipe for run in full.runs_of(full.artifacts["table5"])]
        for recipe in recipes
    )


def test_sec_a5_2s_nine_points_hold_in_table_a11_but_for_the_smallest_range():
    def gain(model, largest):
        column = f"Offset ∈ {{0, ..., {largest}}}"
        ours = value("tableA11", f"A-{model} (Ours)", column)
        return ours - value("tableA11", model, column)

    assert min(gain(model, largest) for model in MODELS for largest in (16, 24, 32)) > 9
    below = {model: round(gain(model, 8), 2) for model in MODELS if gain(model, 8) <= 9}
    assert below == {"Swin-T": 8.0, "SwinV2-T": 7.87, "MViTv2-T": 8.51}


def test_all_of_cifar_preprocesses_as_table_a2_and_its_other_reading_as_a3_to_a5(full):
    for name in classifiers(full):
        family, dataset, regime = name.removeprefix("a_").removeprefix("harmonic_").split("-")
        if regime in ("shifted", "scans", "literal", *PILOT) or family == "canonical_vit_s":
            continue
        for suffix in ("_no_token", "_no_wsa", "_no_pmerge", "_fast", "_jittered", *OTHER_GRIDS):
            family = family.removesuffix(suffix)
        in_a3_to_a5 = regime == "augmented" or (dataset, regime) == ("imagenet", "standard")
        reference = "standard" if in_a3_to_a5 else "circular"
        in_table = full.run(f"{family}-imagenet-{reference}").recipe
        recipe = full.run(name).recipe
        assert recipe.augmentation == in_table.augmentation
        same = {"dataset": dataset, "version": in_table.data.version}
        assert recipe.data.model_copy(update=same) == in_table.data.model_copy(update=same)


def test_on_cifar_the_regime_decides_the_padding_of_defaults_and_nothing_else(full):
    for name in classifiers(full):
        model, dataset, regime = name.split("-")
        if regime == "standard" and dataset != "imagenet":
            circular = full.run(f"{model}-{dataset}-circular")
            assert (full.run(name) is circular) == (model not in ("cvt_13", "mvitv2_t"))
            assert full.run(name).recipe.augmentation == circular.recipe.augmentation


def test_accuracies_of_table_1_that_come_of_one_training_are_marked(full):
    """Both regimes train alike but for the padding of CvT and MViTv2."""
    cells = [cell for cell in full.artifacts["table1"].cells if cell.records]
    marked = {(cell.row, cell.column) for cell in cells if cell.one_training}
    accuracies = {(cell.row, cell.column) for cell in cells if "Top-1" in cell.column}
    assert marked == {at for at in accuracies if at[0] not in ("CvT-13", "MViTv2-T")}
    assert not any(
        cell.one_training
        for name, artifact in full.artifacts.items()
        if name != "table1"
        for cell in artifact.cells
    )


def test_the_pilot_trains_three_readings_once_which_differ_in_what_images_are_given(full):
    runs = full.runs_of(full.artifacts["pilot"])
    assert [run.seed for run in runs] == [0] * 3
    now, literal, augmented = (run.recipe for run in runs)
    assert now == full.run("swin_t-cifar10-circular").recipe
    assert augmented == full.run("swin_t-cifar10-augmented").recipe
    plain = {"mixup": 0.0, "cutmix": 0.0}
    augmentation = now.augmentation.model_copy(update=plain)
    changed = {"augmentation": augmentation, "label_smoothing": 0.0}
    assert literal == now.model_copy(update=changed)
    assert not any(cell.comparable for cell in full.artifacts["pilot"].cells)
    for cell in full.artifacts["pilot"].cells:
        group, label = cell.column.split(" / ")
        same = printed("table1")["Swin-T", f"{group}, CIFAR10 / {label}"]
        assert cell.printed == same


def test_a_laptop_rehearses_the_pilots_readings_in_an_epoch_each():
    catalog = catalog_of("laptop")
    runs = catalog.runs_of(catalog.paper("shift").artifacts["pilot"])
    assert [run.recipe.schedule.epochs for run in runs] == [1] * 3
    assert len({run.recipe.canonical_json() for run in runs}) == 3


def test_the_other_reading_of_table_1_is_trained_at_full_scale_only(full):
    artifact = full.artifacts["table1_augmented"]
    assert {run.name.split("-")[2] for run in full.runs_of(artifact)} == {"augmented"}
    assert "table1_augmented" not in catalog_of("laptop").paper("shift").artifacts


def test_table_a2_as_printed_is_neither_mixed_nor_smoothed_and_squashes_images_of_any_shape():
    """shift, Sec. A3.1."""
    paper = catalog_of("full", extensions=True).paper("shift")
    runs = [run for run, *_ in by_recipe(paper.runs_of(paper.artifacts["table1_literal"]))]
    assert len(runs) == 8 * 3
    for run in runs:
        circular = paper.run(run.name.replace("-literal", "-circular")).recipe
        plain = {"mixup": 0.0, "cutmix": 0.0}
        changed = {
            "augmentation": circular.augmentation.model_copy(update=plain),
            "label_smoothing": 0.0,
            "data": circular.data.model_copy(update={"crop_mode": "squash"}),
        }
        assert run.recipe == circular.model_copy(update=changed)
        described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
        if run.name.startswith(("swin_t-imagenet", "swinv2_t-imagenet")):
            values = preprocessing(described)
            side = 292 if "v2" in run.name else 256
            assert [values[f"{view}/resize/long"] for view in ("train", "eval")] == [side, side]


@pytest.mark.parametrize("scale", ["laptop", "small"])
def test_other_readings_of_the_recipe_and_the_rule_are_trained_at_no_small_scale(scale):
    paper = catalog_of(scale).paper("shift")
    readings = ("-literal", "-zeros", "_printed-")
    names = {run.name for run in paper.runs_of(*paper.artifacts.values())}
    assert not [name for name in names if any(reading in name for reading in readings)]


def test_a_row_of_table_5_leaves_zeros_between_features_and_changes_nothing_else():
    """shift, Sec. A2.2."""
    paper = catalog_of("full", extensions=True).paper("shift")
    cells = [cell for cell in paper.artifacts["table5"].cells if "zeros" in cell.row]
    runs = {run.name: run for run in paper.runs_of(*cells)}
    assert len(runs) == 2
    for run in runs.values():
        plain = paper.run(run.name.removesuffix("-zeros")).recipe
        args = {**plain.model.args, "decode_head": {"upsampling": "zero_insert"}}
        assert run.recipe == plain.model_copy(
            update={"model": plain.model.model_copy(update={"args": args})}
        )


def test_a_fast_model_differs_by_its_selection_alone_and_a_laptop_trains_two(full):
    fast = [row for row in full.artifacts["table1"].rows if row.endswith(", fast")]
    assert len(fast) == 4
    for model in ("a_swin_t", "a_swinv2_t", "a_cvt_13", "a_mvitv2_t"):
        recipe, other = (
            full.run(f"{name}-cifar10-circular").recipe for name in (model, f"{model}_fast")
        )
        args = {**recipe.model.args, "selection": "fast"}
        assert other.model == recipe.model.model_copy(update={"args": args})
        assert other.model_copy(update={"model": recipe.model}) == recipe
    catalog = catalog_of("laptop")
    cells = catalog.paper("shift").artifacts["table1"].cells
    measured = {cell.row: catalog.measurement_of(cell) for cell in cells if cell.records}
    trained = {(row, measurement.run.dataset.name) for row, measurement in measured.items()}
    assert {pair for pair in trained if pair[0] in fast} == {
        ("A-Swin-T, fast", "two-pieces"),
        ("A-CvT-13, fast", "two-pieces"),
    }


@pytest.mark.parametrize("table", ["tableA6", "tableA7", "tableA8"])
def test_segmenters_preprocess_as_printed_but_for_a_misprint_and_sizes_that_fit(full, table):
    from replication.measures.segmentation_preprocessing import segmentation_preprocessing

    artifact = full.artifacts[table]
    values = {}
    for measurement in full.measurements_of(artifact):
        run = measurement.described
        described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
        values[measurement.path] = segmentation_preprocessing(described)
    strayed = [
        (cell.row, cell.column, cell.printed.value)
        for cell in artifact.cells
        if cell.printed and values[cell.records[0]][cell.key] != cell.printed.value
    ]
    misprint = [
        ("Resize (long side)", f"{model} + UperNet / Test Set", 2042)
        for model in ("SwinV2", "A-SwinV2")
    ]
    # A-Swin's windows do not divide a crop of 512: see deviations.md.
    fits = [("Random Crop", "A-Swin + UperNet / Train Set", 512)]
    assert strayed == {"tableA7": misprint, "tableA8": fits}.get(table, [])


def test_segmenters_are_trained_as_sec_a3_2_says(full):
    """shift, Sec. A3.2."""
    runs = [run for run, *_ in by_recipe(full.runs_of(full.artifacts["table5"]))]
    assert len(runs) == 8
    for run in runs:
        assert run.recipe.schedule.steps == 160_000
        assert run.recipe.batch.size == 16
        assert catalog_of("full").resources(run).gpus == 4


def test_an_adaptive_segmenter_differs_by_its_model_alone(full):
    for family in ("swin", "swinv2"):
        for regime in ("circular", "standard"):
            plain, adaptive = (
                full.run(f"{name}_upernet-ade20k-{regime}").recipe
                for name in (family, f"a_{family}")
            )
            assert adaptive.model_copy(update={"model": plain.model}) == plain
            assert adaptive.model.args == {"backbone": {"selection": "paper"}}
            assert plain.model.args == {}


def test_micro_segmenters_of_a_pair_have_one_size_and_the_adaptive_ones_one_run():
    from replication.training.segmentation.config import build_model

    paper = catalog_of("laptop").paper("shift")
    for family in ("swin", "swinv2"):
        adaptive = paper.run(f"a_{family}_upernet-ade20k-circular")
        assert paper.run(f"a_{family}_upernet-ade20k-standard") is adaptive
        sizes = {
            sum(parameter.numel() for parameter in build_model(run.recipe, 14).parameters())
            for regime in ("circular", "standard")
            for run in (adaptive, paper.run(f"{family}_upernet-ade20k-{regime}"))
        }
        assert len(sizes) == 1


def test_swin_da_differs_from_the_default_by_circular_shifts_alone(full):
    default, shifted = (full.run(f"swin_t-cifar10-{r}").recipe for r in ("circular", "shifted"))
    assert shifted.augmentation.circular_shift == 224
    augmentation = shifted.augmentation.model_copy(update={"circular_shift": 0})
    assert shifted.model_copy(update={"augmentation": augmentation}) == default


def test_an_adaptive_model_is_trained_as_its_default(full):
    pairs = [name for name in classifiers(full) if f"a_{name}" in full.recipes]
    assert len(pairs) == 4 * (3 + 3 + 2 + 3) + 1  # circular, literal, augmented, standard; scans
    for name in pairs:
        plain, adaptive = (full.run(recipe_name).recipe for recipe_name in (name, f"a_{name}"))
        assert adaptive.model.args["selection"] == "paper"
        assert adaptive.model.name.startswith("a_")
        assert adaptive.model_copy(update={"model": plain.model}) == plain
        assert adaptive.model.args["drop_path_rate"] == plain.model.args["drop_path_rate"]


def test_default_models_have_circular_padding_under_circular_shifts_only(full):
    for dataset in ("cifar10", "cifar100", "imagenet"):
        circular, standard = (
            [
                full.run(f"{model}-{dataset}-{regime}").recipe.model
                for model in ("cvt_13", "mvitv2_t")
            ]
            for regime in ("circular", "standard")
        )
        assert [model.name for model in circular] == ["cvt_13", "mvitv2_tiny_circular"]
        assert circular[0].args["padding_mode"] == "circular"
        assert [model.name for model in standard] == ["cvt_13", "mvitv2_tiny"]
        assert "padding_mode" not in standard[0].args


def test_cifar_is_trained_as_sec_5_1_says(full):
    """shift, Sec. 5.1."""
    for name in full.recipes:
        if "-cifar" in name:
            run = full.run(name)
            assert len(full.runs(name)) == (1 if name.endswith(PILOT) else 5)
            assert (run.recipe.batch.size, run.recipe.batch.micro) == (48, 24)
            if "adapted" not in name:
                assert run.recipe.schedule.epochs == 100


def test_table_1_trains_each_recipe_five_times_on_two_gpus_each():
    """Sec. 5.1, A3.1: 8 models, 2 with another padding; ours are 4 fast ones and a ViT."""
    catalog = catalog_of("full")
    runs = catalog.runs_of(catalog.paper("shift").artifacts["table1"])
    assert len(runs) == (8 + 2) * 2 * 5
    whole = catalog.extended()
    extended = whole.runs_of(whole.paper("shift").artifacts["table1"])
    assert len(extended) == (8 + 2 + 4 + 1) * 2 * 5
    assert {catalog.resources(run).gpus for run in runs} == {2}


def test_the_schedules_of_cifar_are_imagenets_scaled(full):
    for model in ("swin_t", "swinv2_t", "cvt_13", "mvitv2_t"):
        large, small = (
            full.run(f"{model}-{dataset}-circular").recipe for dataset in ("imagenet", "cifar10")
        )
        ratio = small.batch.size / large.batch.size
        assert small.optimizer.lr == pytest.approx(large.optimizer.lr * ratio)
        for rate in ("warmup_lr", "min_lr"):
            scaled = getattr(large.schedule, rate) * ratio
            assert getattr(small.schedule, rate) == pytest.approx(scaled)
        assert small.schedule.warmup_epochs == round(large.schedule.warmup_epochs / 3)
        assert large.schedule.epochs == 300
        assert small.optimizer.weight_decay == large.optimizer.weight_decay == 0.05


def test_an_ablation_leaves_out_one_module(full):
    """shift, Sec. 5.7."""
    complete = full.run("a_swin_t-cifar10-circular").recipe
    for name, without in (
        ("token", {"adaptive_tokens": False}),
        ("wsa", {"adaptive_windows": False, "attention_mask": True}),  # timm's windows have masks
        ("pmerge", {"adaptive_merging": False}),
    ):
        recipe = full.run(f"a_swin_t_no_{name}-cifar10-circular").recipe
        assert recipe.model.args == {**complete.model.args, **without}
        assert recipe.model_copy(update={"model": complete.model}) == complete


def test_a_trained_cvt_is_adapted_for_0_10_and_20_epochs(full):
    """shift, Sec. A5.3."""
    source = full.run("cvt_13-cifar10-circular")
    for epochs in (0, 10, 20):
        recipe = full.run(f"a_cvt_13-cifar10-adapted{epochs}").recipe
        assert recipe.schedule.epochs == epochs
        assert recipe.model.weights_from == source.home.name
        assert recipe.model.name == "a_cvt_13"


def test_the_erased_patches_and_the_ranges_are_the_printed_pixels(full):
    """shift, Sec. A5.1, Sec. A5.2."""
    for table, field, unit in (("tableA9", "erase", 224), ("tableA11", "max_offset", 32)):
        measurement = full.measurements_of(full.artifacts[table])[0]
        for name, condition in measurement.args["conditions"].items():
            if field in condition:
                assert condition[field] * unit == int(name.removeprefix("erased "))


def test_a_laptop_trains_on_a_stand_in_for_each_data_set_and_levels_all_but_padding():
    paper = catalog_of("laptop").paper("shift")
    names = [name for name in classifiers(paper) if not paper.without(name)]
    for name in names:
        model, dataset, regime = name.split("-")
        standard = f"{model}-{dataset}-standard"
        if regime == "circular" and standard in names:
            padded = model in ("cvt_13", "mvitv2_t")
            assert (paper.run(standard) is paper.run(name)) != padded
            if padded:
                recipes = [paper.run(recipe_name).recipe for recipe_name in (name, standard)]
                assert recipes[0] == recipes[1].model_copy(update={"model": recipes[0].model})
    stand_ins = {paper.run(name).recipe.data.dataset for name in names}
    assert stand_ins == {"two-pieces", "piece-on-piece", "piece-to-crop", "digits"}
    assert not any(cell.comparable for cell in paper.artifacts["table1"].cells)


def test_a_pair_is_trained_alike_at_a_smaller_scale_too():
    paper = catalog_of("laptop").paper("shift")
    for name in classifiers(paper):
        if f"a_{name}" in paper.recipes and not paper.without(f"a_{name}"):
            plain, adaptive = (paper.run(recipe_name).recipe for recipe_name in (name, f"a_{name}"))
            alike = adaptive.model_copy(update={"model": plain.model})
            assert alike.with_rate(plain.optimizer.lr) == plain  # each has its own, if searched
            ours, theirs = adaptive.model.args, plain.model.args
            assert {**theirs, "selection": "paper"} == {
                **ours,
                **{key: value for key, value in theirs.items() if key == "padding_mode"},
            }


def test_runtime_and_memory_are_never_called_a_match(full):
    for name in ("table3", "table4", "tableA1"):
        for cell in full.artifacts[name].cells:
            kind = cell.metric == "parameters" or "live tensors" in cell.metric
            assert cell.comparable == (kind and bool(cell.records))


def test_the_sample_of_table_a11s_worst_offsets_is_the_one_in_its_note(full):
    note = full.artifacts["tableA11"].note
    for scale, words in (
        ("full", "{images:,} with {shifts:,} offsets"),
        ("laptop", "{images} with all"),
    ):
        spec = catalog_of(scale).paper("shift").measure("worst_shift")
        assert words.format(**spec.args) in note


# What the paper claims


def test_every_adaptive_row_with_a_perfect_consistency_has_its_claim(full):
    claims = [c for c in full.claims if c.relation == "equal"]
    rows = {(c.left.artifact, c.left.row) for c in claims if c.right == 100}
    for table in (
        "table1",
        "table2",
        "table5",
        "table6",
        "tableA9",
        "tableA10",
        "tableA11",
        "tableA12",
    ):
        perfect = {
            row
            for (row, column), cell in printed(table).items()
            if cell.value == 100 and not column.startswith("Top-1")
        }
        assert perfect <= {row for artifact, row in rows if artifact == table}
