"""The octic paper's printed facts: complete, consistent, and what our recipes say is what it says.

Where the paper contradicts itself, the test says so: deviations.md lists the same places.
"""

import fnmatch
import math
from pathlib import Path

import pytest
import timm
import torch

from replication.config.paper import read_reference
from replication.context import Described
from replication.measures.hyperparameters import hyperparameters
from replication.papers.octic.dinov2.training_cost import hyperparameters as of_dinov2
from tests.conftest import catalog_of
from vitrail.measures.flops import count
from vitrail.octic.invariants import INVARIANTS

FOLDER = Path(__file__).parents[2] / "configs" / "papers" / "octic"
PRINTED = {
    "published": 9,
    "published_dinov2": 36,
    "table1": 15, "table2": 72, "table3": 63, "table4": 16, "table5": 12, "table6": 26,
    "table6b": 26, "table7": 30, "table8": 13, "table9": 18, "table10": 37, "fig1": 36,
}  # fmt: skip
SCALES = ["laptop", "workstation", "full"]
SIZES = {"l": "ViT-L/16", "h": "ViT-H/14"}
FAMILIES = ["vit", "h2", "i8", "h8", "d2", "d8"]


def printed(table):
    return read_reference(FOLDER / "reference" / f"{table}.csv")


def value(table, row, column):
    return printed(table)[row, column].value


@pytest.fixture(scope="module")
def full():
    return catalog_of("full").paper("octic")


@pytest.fixture(scope="module")
def small():
    return catalog_of("small").paper("octic")


@pytest.fixture(scope="module")
def laptop():
    return catalog_of("laptop").paper("octic")


def classifiers(paper):
    """All but those that scale small alone trains, on CIFAR-10 and at one width."""
    others = "dinov2-*", "*-cifar10*", "*-equal_width"
    return [
        name
        for name in paper.recipes
        if not any(fnmatch.fnmatch(name, pattern) for pattern in others)
    ]


# What is printed


@pytest.mark.parametrize("table", PRINTED)
def test_every_printed_value_is_there_with_its_place(table):
    cells = printed(table)
    assert len(cells) == PRINTED[table]
    assert all("App. " in cell.source or "Sec. " in cell.source for cell in cells.values())


@pytest.mark.parametrize(("row", "size"), [("ViT-L", "ViT-L/16"), ("ViT-H", "ViT-H/14")])
def test_table_1s_gains_follow_from_table_2_but_one_of_memory(row, size):
    for gain, column, wide in (
        ("Throughput", "Throughput (im/s)", False),
        ("Peak Mem.", "Peak Mem. (MB)", True),
    ):
        plain, octic = (value("table2", name, column) for name in (size, f"D8({size})"))
        computed = plain / octic if wide else octic / plain
        if (row, gain) == ("ViT-L", "Peak Mem."):
            assert (value("table1", row, gain), round(computed, 2)) == (2.44, 2.26)
        else:
            assert computed == pytest.approx(value("table1", row, gain), abs=0.006)


def test_table_1s_flops_of_l_and_h_are_truncated():
    for row, size in (("ViT-L", "ViT-L/16"), ("ViT-H", "ViT-H/14")):
        plain, octic = (value("table2", name, "FLOPs (G)") for name in (size, f"D8({size})"))
        assert math.floor(100 * plain / octic) / 100 == value("table1", row, "FLOPs")


def test_the_invariant_models_alone_keep_their_accuracy():
    changes = {
        row: cell.value for (row, column), cell in printed("table2").items() if "OOD" in column
    }
    kept = {row for row, change in changes.items() if change == 0}
    assert kept == {f"{family}({size})" for family in ("I8", "D8") for size in SIZES.values()}
    assert max(change for row, change in changes.items() if row not in kept) == -12.6


def test_figure_1_shows_table_2():
    columns = {"GMACs": "FLOPs (G)"}
    for (row, column), cell in printed("fig1").items():
        family, size = row.split(", ")
        in_table = size if family == "ViT" else f"{family}({size})"
        assert value("table2", in_table, columns.get(column, column)) == cell.value


def test_table_5s_power_spectrum_is_table_2s_d8():
    d8 = value("table2", "D8(ViT-L/16)", "Top-1 Acc.")
    assert value("table5", "Power Spec.", "Top-1") == d8


def test_table_7_repeats_table_3():
    columns = {
        "FLOPs (G)": "FLOPs (G)",
        "iNaturalist2021 / linear": "IN1K / linear",
        "iNaturalist2021 / k-NN": "IN1K / k-NN",
        "Places365 / linear": "ADE20K / linear",
        "Places365 / k-NN": "ADE20K / k-NN",
    }
    for (row, column), cell in printed("table7").items():
        assert value("table3", row, columns[column]) == cell.value


def test_table_8s_total_is_10_000_more_than_its_rows():
    counts = {row: cell.value for (row, column), cell in printed("table8").items() if "K" in column}
    total = counts.pop("Total")
    assert (total, sum(counts.values())) == (354, 344)


def test_table_10s_units_are_hours_of_a_whole_number_of_gpus_and_add_up():
    cells = printed("table10")
    units = {row: cell.value for (row, column), cell in cells.items() if column == "RU"}
    assert units.pop("Total") == sum(units.values())
    for row, unit in units.items():
        time = cells[row, "Time (h)"].value  # two are printed in minutes
        gpus = unit / (int(time.removesuffix("min")) / 60 if isinstance(time, str) else time)
        assert round(gpus) in (8, 16, 32)
        assert gpus == pytest.approx(round(gpus), rel=0.03)


# What our configuration says


@pytest.mark.parametrize("scale", SCALES)
def test_every_printed_value_has_a_cell_where_its_artifact_exists(scale):
    paper = catalog_of(scale).paper("octic")
    for name, artifact in paper.artifacts.items():
        cells = [cell for cell in artifact.cells if cell.printed]
        assert len(cells) == PRINTED.get(name, 0)
        if name not in ("table8", "table10"):
            missing = [cell.row for cell in cells if not cell.records]
            assert all(scale == "workstation" and "ViT-H/14" in row for row in missing)


def measured_once(paper, table, measure):
    """Each cell of a table with its value; a run is measured once for all of its cells."""
    values = {}
    for cell in paper.artifacts[table].cells:
        run = paper.measurement_of(cell).described
        if run.name not in values:
            described = Described("cpu", Path(), 0, recipe=run.recipe, info=run.dataset)
            values[run.name] = measure(described)
        yield cell, values[run.name][cell.key]


def test_training_has_the_hyperparameters_that_the_paper_prints(full):
    """octic, App. E.1."""
    for cell, measured in measured_once(full, "table6", hyperparameters):
        assert measured == (cell.printed.value if cell.printed else 3e-3), (cell.row, cell.column)


def test_dinov2_has_the_hyperparameters_that_the_paper_prints(full):
    """But the teacher's first momentum, of which deviations.md says why (octic, App. E.2)."""
    for cell, measured in measured_once(full, "table6b", of_dinov2):
        expected = {"lr": 4e-3, "layer_scale": 1e-5, "momentum": 0.992}
        assert measured == expected.get(cell.key, cell.printed and cell.printed.value), cell.row


def test_every_dinov2_is_trained_as_the_one_in_table_6(full):
    """octic, Sec. 4.2."""
    for name in fnmatch.filter(full.recipes, "dinov2-*"):
        if not name.endswith(("-dinobloom", "-published", "-undecayed", "-momentum")):
            recipe, in_table = full.run(name).recipe, full.run("dinov2-h8-l").recipe
            same = {"model": in_table.model, "batch": in_table.batch}
            assert recipe.model_copy(update=same) == in_table


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("dinov2-vit-l", "ViT-L/16"),
        ("dinov2-i8-l", "octic ViT-L/16, first"),
        ("dinov2-h8-l", "octic ViT-L/16, second"),
        ("dinov2-d8-l", "octic ViT-L/16, third"),
        ("dinov2-vit-h", "ViT-H/16"),
        ("dinov2-i8-h", "octic ViT-H/16, first"),
        ("dinov2-h8-h", "octic ViT-H/16, second"),
    ],
)
def test_a_micro_batch_of_dinov2_is_what_each_gpu_of_table_10_took(full, name, row):
    """All octic rows of a size have as many GPUs, whichever family is which."""
    units, hours = (value("table10", f"DINOv2, {row}", column) for column in ("RU", "Time (h)"))
    assert full.run(name).recipe.batch.size == 1024
    assert full.run(name).recipe.batch.micro == 1024 / round(units / hours)


def test_dinov2_is_run_as_its_released_configurations_say(full, laptop):
    """Layer scales of octic blocks are decayed everywhere; full scale is compiled."""
    for paper in (full, laptop):
        for name in fnmatch.filter(paper.recipes, "dinov2-*"):
            recipe = paper.run(name).recipe
            assert recipe.optimizer.decay_layer_scale != name.endswith("-undecayed")
            assert recipe.compile == (paper is full)


def test_every_model_is_trained_as_the_one_in_table_6(full):
    others = ("-published", "-shuffled", "-stacked")
    for name in (name for name in classifiers(full) if not name.endswith(others)):
        size = next((size for size in ("h", "b") if f"-{size}" in name), "l")
        recipe, in_table = full.run(name).recipe, full.run("h8-h" if size == "h" else "h8-l").recipe
        assert recipe.model_copy(update={"model": in_table.model}) == in_table
        assert recipe.model.args["drop_path_rate"] == {"b": 0.1, "l": 0.4, "h": 0.5}[size]
        assert recipe.model.drop_path_rule == "constant"
        assert recipe.model.args["init_values"] == 1e-4


def test_octic_norms_are_those_of_every_released_model_but_in_the_texts_row(full, laptop):
    for paper in (full, laptop):
        for name in paper.recipes:
            recipe = paper.run(name).recipe
            if "octic" in recipe.model.name:
                expected = "total" if name.endswith("-total") else "published"
                assert recipe.model.args["norm"] == expected, name
        text, released = (paper.run(name).recipe for name in ("h8-l-total", "h8-l"))
        args = {**released.model.args, "norm": "total"}
        model = released.model.model_copy(update={"args": args})
        assert text == released.model_copy(update={"model": model})


def test_open_choices_are_all_that_their_rows_change(full, laptop):
    for paper in (full, laptop):
        released, stacked = (paper.run(f"h8-l-lamb{end}").recipe for end in ("", "-stacked"))
        assert released.optimizer.name == stacked.optimizer.name == "lamb"
        assert released.optimizer.trust_ratio == "representation"
        changed = released.optimizer.model_copy(update={"trust_ratio": "weight"})
        assert stacked == released.model_copy(update={"optimizer": changed})
        assert released.model == paper.run("h8-l").recipe.model
        decayed, undecayed = (paper.run(f"dinov2-h8-l{end}").recipe for end in ("", "-undecayed"))
        changed = decayed.optimizer.model_copy(update={"decay_layer_scale": False})
        assert undecayed == decayed.model_copy(update={"optimizer": changed})
    as_printed, released = (full.run(f"dinov2-h8-l{end}").recipe for end in ("-momentum", ""))
    changed = released.teacher.model_copy(update={"momentum": (0.8, 1.0)})
    assert as_printed == released.model_copy(update={"teacher": changed})
    assert full.run("h8-l-lamb") is full.run("h8-l")
    assert laptop.run("h8-l-lamb").recipe.optimizer.lr == full.run("h8-l").recipe.optimizer.lr


def test_rows_of_open_choices_are_the_papers_own_at_full_scale(full):
    left_out = {name for name in full.recipes if full.without(name)}
    assert {"h8-l-lamb-stacked", "dinov2-h8-l-undecayed", "dinov2-h8-l-momentum"} <= left_out
    assert not left_out & {"h8-l", "h8-l-total", "h8-l-lamb", "dinov2-h8-l"}


@pytest.mark.parametrize(("size", "gpus"), [("l", 16), ("h", 32)])
def test_a_micro_batch_is_what_each_of_the_papers_gpus_took(full, size, gpus):
    batch = full.run(f"d8-{size}").recipe.batch
    assert batch.size / batch.micro == gpus


def test_invariantisations_and_blocks_are_all_that_the_ablations_change(full):
    """octic, Sec. 4.3."""
    d8, args = full.run("d8-l").recipe, {}
    for name in classifiers(full):
        run = full.run(name)
        if name.startswith("d8-l"):
            args[name] = run.recipe.model.args["invariant"]
            assert run.recipe.model.name == d8.model.name
        elif "-k" in name:
            family, _, k = name.split("-")
            assert run.recipe.model.args["octic_depth"] == int(k.removeprefix("k"))
            assert run.recipe.model.name == full.run(f"{family}-l").recipe.model.name
    assert set(args.values()) == set(INVARIANTS)  # Table 5's six and the published linear one
    assert full.run("d8-l-power_spectrum") is full.run("d8-l")


@pytest.mark.parametrize("family", ["d8", "h8"])
def test_arbitrary_patches_are_all_that_their_ablation_changes(full, laptop, family):
    for paper in (full, laptop):
        constrained, free = (paper.run(f"{family}-b{end}").recipe for end in ("", "-arbitrary"))
        args = {**constrained.model.args, "arbitrary_patches": True}
        model = constrained.model.model_copy(update={"args": args})
        assert free == constrained.model_copy(update={"model": model})
    assert "base" in full.run(f"{family}-b").recipe.model.name


def test_stand_ins_of_both_sizes_share_a_run(laptop):
    for family in FAMILIES:
        assert laptop.run(f"{family}-h") is laptop.run(f"{family}-l")
    assert laptop.run("h8-b") is laptop.run("h8-l")
    for family in ("i8", "h8"):
        for k, same in ((4, 8), (16, 20)):
            assert laptop.run(f"{family}-l-k{k}") is laptop.run(f"{family}-l-k{same}")
    assert not any(cell.comparable for cell in laptop.artifacts["table5"].cells)


def test_stand_ins_have_their_share_of_octic_blocks(laptop):
    depth = laptop.run("h8-l").recipe.model.args["depth"]
    for name in classifiers(laptop):
        recipe = laptop.run(name).recipe
        if "-k" in name:
            share = int(name.rpartition("-k")[2]) / 24
            assert recipe.model.args["octic_depth"] == pytest.approx(share * depth, abs=0.7)


@pytest.mark.parametrize("kind", ["dinov2-*-l", "*-[lh]*"])
def test_stand_ins_of_all_families_differ_by_their_model_and_schedule_alone(laptop, kind):
    names = fnmatch.filter(classifiers(laptop), kind) or fnmatch.filter(laptop.recipes, kind)
    names = [name for name in names if "-lamb" not in name]
    first, *others = (laptop.run(name).recipe for name in names)
    assert others
    for recipe in (first, *others):
        alike = recipe.with_rate(first.optimizer.lr)  # each has its own, of one search
        alike = alike.model_copy(update={"model": first.model, "schedule": first.schedule})
        shuffled = alike.data.model_copy(update={"shuffle_labels": False})
        assert alike.model_copy(update={"data": shuffled}) == first
        args, width = recipe.model.args, recipe.model.args["embed_dim"]
        same = {**first.model.args, "embed_dim": width, "init_std": args["init_std"]}
        assert same == {name: args[name] for name in same}
        assert args["init_std"] == pytest.approx(0.02 * math.sqrt(1024 / width), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["laptop", "small"])
@pytest.mark.parametrize("name", ["{}-l", "dinov2-{}-l"])
def test_each_family_of_small_models_has_the_width_that_costs_as_a_plain_vit_of_48(scale, name):
    paper = catalog_of(scale).paper("octic")

    def cost(recipe, width):
        args, side = {**recipe.model.args, "embed_dim": width}, recipe.data.image_size
        with torch.device("meta"):
            model = timm.create_model(recipe.model.name, num_classes=6, **args).eval()
            return count(model, torch.empty(1, 3, side, side)).macs

    wanted = cost(paper.run(name.format("vit")).recipe, 48)
    for family in FAMILIES:
        if name.format(family) in paper.recipes:
            recipe = paper.run(name.format(family)).recipe
            width = recipe.model.args["embed_dim"]
            below, chosen, above = (cost(recipe, width + more) for more in (-16, 0, 16))
            assert below < chosen < above  # so that no other width is nearer than these two
            nearest = min(below, chosen, above, key=lambda macs: abs(macs - wanted))
            assert nearest == chosen, family


def test_families_of_scale_small_differ_by_their_model_alone_on_each_dataset(small):
    for images, dataset in (("", "eurosat"), ("-cifar10", "cifar10-10k")):
        plain = small.run(f"vit-l{images}").recipe
        assert plain.data.dataset == dataset
        for family in ("h2", "i8", "h8", "d8"):
            for width in ("", "-equal_width"):
                recipe = small.run(f"{family}-l{images}{width}").recipe
                rate = recipe.optimizer.model_copy(update={"lr": plain.optimizer.lr})  # searched
                own = {"model": plain.model, "optimizer": rate}
                assert recipe.model_copy(update=own) == plain
                args, other = recipe.model.args, plain.model.args
                assert args["init_std"] == pytest.approx(
                    0.02 * math.sqrt(1024 / args["embed_dim"]), rel=1e-3
                )
                if width:
                    assert args["embed_dim"] == other["embed_dim"]


@pytest.mark.parametrize("scale", SCALES)
def test_parameters_and_operations_are_those_of_full_size_models(scale):
    paper = catalog_of(scale).paper("octic")
    artifacts = paper.artifacts
    for cell in artifacts["table2"].cells:
        if cell.metric in ("parameters", "multiply-adds"):
            assert paper.measurement_of(cell).device == "cpu"
            assert cell.comparable
        elif cell.metric in ("throughput", "peak memory"):
            assert not cell.comparable


@pytest.mark.parametrize("family", ["vit", "i8"])
def test_dinobloom_goes_on_from_the_trained_backbone(full, family):
    """octic, App. E.3."""
    run, source = (full.run(f"dinov2-{family}-{end}") for end in ("dinobloom", "l"))
    assert run.source is source
    recipe, before = run.recipe, source.recipe
    assert recipe.schedule.steps * recipe.batch.size == 4000 * 448
    assert recipe.optimizer.lr == pytest.approx(2e-4 * (448 / 1024) ** 0.5, rel=1e-4)
    assert (recipe.crops.local_count, recipe.head.separate) == (0, True)
    epoch, schedule = 500, recipe.schedule  # of the released custom.yaml
    assert schedule.planned_steps == 200 * epoch
    assert schedule.warmup_steps == 20 * epoch
    assert recipe.teacher.temperature_steps == 30 * epoch
    assert schedule.freeze_last_layer_steps == epoch
    assert recipe.head.bottleneck == 384
    for same in ("masks", "koleo_weight", "drop_path", "precision"):
        assert getattr(recipe, same) == getattr(before, same)


def test_dinoblooms_stand_in_is_judged_on_what_it_is_trained_on(laptop):
    (trained,) = {laptop.run(f"dinov2-{family}-dinobloom").dataset.name for family in ("vit", "i8")}
    measured = laptop.measurements_of(laptop.artifacts["table9"])
    assert {info.name for own in measured for info in own.datasets} == {trained}
