import json
import subprocess
import sys
from fnmatch import fnmatchcase

import pytest

from replication.config.paper import read_reference
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import merge
from replication.pricing.cost import (
    COUNTED,
    COUNTED_SCALES,
    Costs,
    Range,
    costs_on,
    count_model,
    load_devices,
    model_key,
    models_of,
    read_counted,
    training_images,
    write_counted,
)
from replication.records.records import complete, read_record
from replication.report.ledger import RECORDS, as_lines, published_folder
from tests.conftest import catalog_of
from vitrail.errors import VitrailError

DAY = 86400


@pytest.fixture
def run(catalog):
    """The run `plain` at scale small: one epoch of the digits."""
    return catalog().paper("tiny").run("plain")


def recipe_of(model, **args):
    return ClassificationRecipe.model_validate(
        {
            "model": {"name": model, "args": args},
            "data": {"dataset": "imagenet"},
            "optimizer": {"lr": 1e-3},
            "schedule": {"epochs": 1},
            "batch": {"size": 2, "micro": 2},
        }
    )


@pytest.fixture
def log(catalog, run):
    """Leave the log and the record of a training of seed 0."""
    return lambda *given, **more: write_log(catalog(), run, *given, **more)


def write_log(catalog, run, speeds, device, processes=1):
    folder = run.folder
    folder.mkdir(parents=True)
    lines = [json.dumps({"step": i, "images_per_second": s}) for i, s in enumerate(speeds)]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    facts = {"device": device, "processes": processes}
    complete(catalog.training_node(run), {"sha256": "", "facts": facts})


def test_images_are_epochs_times_training_images(catalog):
    full = catalog("full").paper("tiny").run("plain")
    assert training_images(full) == 3 * full.dataset.train_images == 3 * 1_281_167


def test_flops_and_parameters_of_vit_small_are_those_of_its_closed_form():
    n, d, depth = 197, 384, 12
    block = 2 * n * 12 * d**2 + 4 * n**2 * d  # four projections, an MLP of ratio 4; two products
    embedding, head = 2 * 196 * 3 * 16**2 * d, 2 * d * 1000
    cost = count_model(recipe_of("vit_small_patch16_224"), 1000)
    assert cost.forward_flops == depth * block + embedding + head == 9_197_764_608
    assert cost.parameters == 22_050_664


@pytest.mark.parametrize(
    ("model", "days", "end"), [("vit_small_patch16_224", 2, 0), ("vit_base_patch16_224", 3, 1)]
)
def test_the_a100_sustains_what_the_variance_paper_states(root, model, days, end):
    images_per_second = 300 * 1_281_167 / (8 * days * DAY)
    flops = 3 * count_model(recipe_of(model), 1000).forward_flops
    assert load_devices(root)["a100"].sustained[end] == pytest.approx(
        images_per_second * flops, rel=0.005
    )


def test_an_assumed_device_sustains_the_share_of_its_peak_that_the_a100_does(root):
    devices = load_devices(root)
    share = [rate / devices["a100"].peak for rate in devices["a100"].sustained]
    for name in ("h100", "h200"):
        shares = [rate / devices[name].peak for rate in devices[name].sustained]
        assert shares == pytest.approx(share, rel=0.005)


def test_without_history_the_speed_is_flops_over_the_device_rate(catalog, run):
    device = load_devices(catalog().root)["a100"]
    costs = Costs(catalog(), device)
    flops = 3 * costs.model(run).forward_flops
    expected = Range(device.sustained[0] / flops, device.sustained[1] / flops)
    assert costs.speed(run) == (expected, "FLOPs")


def test_logs_of_the_recipe_come_before_flops(catalog, run, log):
    costs = Costs(catalog(), load_devices(catalog().root)["cpu"])
    assert costs.speed(run)[1] == "FLOPs"
    log([10, 30, 20], "cpu: some processor, 1 thread")
    assert costs.speed(run) == (Range(20, 20), "its logs")


def test_logs_of_another_kind_of_device_tell_nothing(catalog, run, log):
    log([10, 30, 20], "NVIDIA H200")
    assert Costs(catalog(), load_devices(catalog().root)["cpu"]).speed(run)[1] == "FLOPs"


def test_a_damaged_record_tells_no_speed(catalog, run, log):
    log([10, 30, 20], "cpu: some processor, 1 thread")
    run.record.write_text("{")
    assert Costs(catalog(), load_devices(catalog().root)["cpu"]).speed(run)[1] == "FLOPs"


@pytest.mark.parametrize(
    ("device", "source"), [("cpu: some processor, 1 thread", "published"), ("NVIDIA H200", "FLOPs")]
)
def test_a_published_training_tells_the_speed_on_such_a_device(catalog, run, device, source):
    publish(catalog(), run, {"device": device, "processes": 2, "images_per_second": 60.0})
    costs = Costs(catalog(), load_devices(catalog().root)["cpu"])
    speed, told = costs.speed(run)
    assert told == source
    assert (speed == Range(30, 30)) == (source == "published")


def test_logs_come_before_what_is_published(catalog, run, log):
    device = "cpu: some processor, 1 thread"
    publish(catalog(), run, {"device": device, "processes": 1, "images_per_second": 60.0})
    log([10, 30, 20], device)
    costs = Costs(catalog(), load_devices(catalog().root)["cpu"])
    assert costs.speed(run) == (Range(20, 20), "its logs")


@pytest.mark.parametrize(
    ("change", "source"),
    [({"schedule": {"epochs": 7}}, "its logs"), ({"batch": {"size": 1, "micro": 1}}, "FLOPs")],
)
def test_another_schedule_trains_as_fast_and_another_batch_may_not(
    catalog, run, log, change, source
):
    log([10, 30, 20], "cpu: some processor, 1 thread")
    recipe = ClassificationRecipe.model_validate(merge(run.recipe.model_dump(), change))
    other = run.model_copy(update={"recipe": recipe, "home": run.home.with_name("other")})
    costs = Costs(catalog(), load_devices(catalog().root)["cpu"])
    assert costs.speed(other)[1] == source


def test_a_published_training_of_zero_epochs_tells_no_speed(catalog, run):
    device = "cpu: some processor, 1 thread"
    publish(catalog(), run, {"device": device, "processes": 1, "images_per_second": 0})
    costs = Costs(catalog(), load_devices(catalog().root)["cpu"])
    assert costs.speed(run)[1] == "FLOPs"
    assert costs.seconds(run).low > 0


def publish(catalog, run, facts):
    """Write the record of a training of seed 0 to where published ones lie."""
    complete(catalog.training_node(run), {"sha256": "", "facts": facts})
    folder = published_folder(catalog) / run.paper
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORDS).write_text(as_lines([read_record(run.record)]))
    run.record.unlink()


def test_a_log_of_several_processes_counts_for_each_of_them(catalog, run, log):
    log([800], "NVIDIA A100-SXM4-80GB", processes=8)
    costs = Costs(catalog(), load_devices(catalog().root)["a100"])
    assert costs.speed(run)[0] == Range(100, 100)


def test_a_recipe_of_zero_epochs_costs_nothing(catalog):
    run = catalog("full").paper("tiny").run("published")
    costs = Costs(catalog("full"), load_devices(catalog().root)["a100"])
    assert costs.seconds(run) == Range(0, 0)
    assert costs.checkpoints_bytes(run) == 0


def test_a_checkpoint_holds_weights_two_moments_and_the_moving_average(catalog):
    full = catalog("full")
    run = full.paper("tiny").run("plain")
    costs = Costs(full, load_devices(full.root)["a100"])
    assert costs.checkpoints_bytes(run) == 2 * 4 * costs.model(run).parameters * 4


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


def test_its_counts_are_those_of_todays_code(root):
    """One recipe of each registered model at full scale is counted again."""
    written = read_counted(root)
    models = {run.recipe.model.name: run for run in catalog_of("full").extended().runs.values()}
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


def test_a_plan_of_segmenters_imports_neither_torch_nor_mmsegmentation():
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; from replication.cli.plan import plan;"
            "plan(['shift_table5'], scale='full');"
            "print({'torch', 'timm', 'mmcv', 'mmengine', 'mmseg'} & {*sys.modules})",
        ],
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr


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
    assert cost.outputs == run.dataset.classes
    (here.root / COUNTED).write_text("key,recipe,parameters,forward_flops,outputs\na,b,c,d,e\n")
    with pytest.raises(VitrailError, match="write it anew with"):
        read_counted(here.root)


TABLE_10 = {
    "DeiT III, ViT-H/14": ("[ihd]8-h", 1),
    "DeiT III, ViT-L/16": ("[ihd]8-l", 1),
    "Ablation: Invariantisation, D8(ViT-L/16)": ("d8-l-*", 5),
    "Ablation: Hybridisation, ViT-L/16": ("[ih]8-l-k*", 6),
    "DINOv2, octic ViT-H/16": ("dinov2-[ih]8-h", 1),
    "DINOv2, octic ViT-L/16": ("dinov2-[ihd]8-l", 1),
    "DINOv2, ViT-H/16": ("dinov2-vit-h", 1),
    "DINOv2, ViT-L/16": ("dinov2-vit-l", 1),
    "DinoBloom, I8(ViT-L/16)": ("dinov2-i8-dinobloom", 1),
    "DinoBloom, ViT-L/16": ("dinov2-vit-dinobloom", 1),
}


def test_what_is_estimated_is_within_twice_what_octic_printed(root):
    """octic, Table 10: its 18 rows but the total."""
    full = catalog_of("full")
    (_, costs), (_, faster) = costs_on(full, "a100"), costs_on(full, "h100")
    table = read_reference(root / "configs/papers/octic/reference/table10.csv")
    units = {row: float(cell.value) for (row, unit), cell in table.items() if unit == "RU"}
    rows = {row: each for row, each in units.items() if row != "Total"}
    assert len(rows) == 18
    paper = full.paper("octic")
    for row, printed in rows.items():
        pattern, trainings = next(own for label, own in TABLE_10.items() if row.startswith(label))
        names = [name for name in paper.recipes if fnmatchcase(name, pattern)]
        found = [each for name in names if costs.printed(each := paper.run(name)) is not None]
        assert found
        for run in found:
            low, high = (trainings * hours for hours in costs.seconds(run).hours)
            assert printed / 2 <= low <= high <= 2 * printed
            assert faster.seconds(run).high < costs.seconds(run).high / 3  # peaks: 989 over 312


def test_a_papers_own_cost_is_known_of_its_own_recipes_and_no_stand_ins(root):
    """octic, Table 10, of which every row but the total has its recipes."""
    full = catalog_of("full")
    _, costs = costs_on(full, "a100")
    paper, found = full.paper("octic"), {}
    for name in paper.recipes:
        seconds = costs.printed(paper.run(name))
        found[name] = seconds and tuple(round(hours) for hours in seconds.hours)
    assert found["dinov2-vit-l"] == (384, 384)
    assert found["dinov2-h8-h"] == (960, 1056)
    assert found["i8-h"] == (1760, 1856)
    assert found["d8-l-linear"] == (768, 768)
    assert found["vit-l"] is found["i8-h-published"] is None
    rows = [row for cost in paper.info.costs for row in cost.rows]
    table = read_reference(root / "configs/papers/octic/reference/table10.csv")
    assert sorted(rows) == sorted({row for row, _ in table} - {"Total"})
    laptop = catalog_of("laptop")
    _, costs = costs_on(laptop, "a100")
    assert costs.printed(laptop.paper("octic").run("i8-h")) is None
