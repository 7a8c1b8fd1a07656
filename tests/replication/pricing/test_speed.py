"""How long nodes take: by their own speed, by the paper or by FLOPs."""

import pytest

from replication.config.paper import read_reference
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.schema import merge
from replication.pricing.counts import count_model
from replication.pricing.speed import Costs, Range, costs_on, load_devices, training_images
from replication.records.records import complete, read_record
from replication.report.ledger import RECORDS, as_lines, published_folder
from tests.conftest import catalog_of
from tests.replication.pricing.conftest import recipe_of

DAY = 86400
CPU = "cpu: some processor, 1 thread"
H200 = "NVIDIA H200"


@pytest.fixture
def run(catalog):
    """The run `plain` at scale small: one epoch of the digits."""
    return catalog().paper("tiny").run("plain")


@pytest.fixture
def train(catalog, run):
    """Leave the record of a training of seed 0 on a device."""
    return lambda *told: record_training(catalog(), run, *told)


def record_training(catalog, run, device, images_per_second, processes=1):
    speed = {"images_per_second": images_per_second}
    run.home.mkdir(parents=True, exist_ok=True)
    facts = {"device": device, "processes": processes, **speed}
    complete(catalog.training_node(run), {"sha256": "", "facts": facts})


@pytest.fixture
def publish(catalog, run, train):
    """Leave the record of a training of seed 0 where published ones lie."""

    def leave(*told):
        train(*told)
        folder = published_folder(catalog()) / run.paper
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORDS).write_bytes(as_lines([read_record(run.record)]))
        run.record.unlink()

    return leave


@pytest.fixture
def costs(catalog):
    """Costs on a kind of device."""
    return lambda device="cpu": Costs(catalog(), load_devices(catalog().root)[device])


def test_images_are_epochs_times_training_images(catalog):
    full = catalog("full").paper("tiny").run("plain")
    assert training_images(full) == 3 * full.dataset.train_images == 3 * 1_281_167


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
    speed, source = costs.speed(run)
    assert (speed.low, speed.high) == pytest.approx([rate / flops for rate in device.sustained])
    assert source == "FLOPs"


def test_trainings_of_the_recipe_come_before_flops(run, costs, train):
    assert costs().speed(run)[1] == "FLOPs"
    train(CPU, 20.0)
    assert costs().speed(run) == (Range(20, 20), "measured")


def test_a_training_on_another_kind_of_device_tells_nothing(run, costs, train):
    train(H200, 20.0)
    assert costs().speed(run)[1] == "FLOPs"


def test_the_time_of_loading_is_added_to_that_of_the_flops(catalog, run):
    cpu = load_devices(catalog().root)["cpu"]
    slow = cpu.model_copy(update={"loading": {"classification": 0.5}})
    (plain, _), (loading, _) = (Costs(catalog(), device).speed(run) for device in (cpu, slow))
    for end in ("low", "high"):
        assert 1 / getattr(loading, end) == pytest.approx(1 / getattr(plain, end) + 0.5)


def test_a_damaged_record_tells_no_speed(run, costs, train):
    train(CPU, 20.0)
    run.record.write_text("{")
    assert costs().speed(run)[1] == "FLOPs"


@pytest.mark.parametrize(("device", "source"), [(CPU, "measured"), (H200, "FLOPs")])
def test_a_published_training_tells_the_speed_on_such_a_device(run, costs, publish, device, source):
    publish(device, 60.0, 2)
    speed, told = costs().speed(run)
    assert told == source
    assert (speed == Range(30, 30)) == (source == "measured")


def test_trainings_in_runs_come_before_what_is_published(run, costs, publish, train):
    publish(CPU, 60.0)
    train(CPU, 20.0)
    assert costs().speed(run) == (Range(20, 20), "measured")


@pytest.mark.parametrize(
    ("change", "source"),
    [
        ({"schedule": {"epochs": 7}, "optimizer": {"lr": 0.5}}, "measured"),
        ({"data": {"part": "tuning"}}, "measured"),
        ({"batch": {"size": 1, "micro": 1}}, "FLOPs"),
    ],
)
def test_another_schedule_trains_as_fast_and_another_batch_may_not(
    run, costs, train, change, source
):
    train(CPU, 20.0)
    recipe = ClassificationRecipe.model_validate(merge(run.recipe.model_dump(), change))
    other = run.model_copy(update={"recipe": recipe, "home": run.home.with_name("other")})
    assert costs().speed(other)[1] == source


def test_a_published_training_of_zero_epochs_tells_no_speed(run, costs, publish):
    publish(CPU, 0)
    assert costs().speed(run)[1] == "FLOPs"
    assert costs().seconds(run).low > 0


def test_the_speed_of_several_processes_counts_for_each_of_them(run, costs, train):
    train("NVIDIA A100-SXM4-80GB", 800.0, 8)
    assert costs("a100").speed(run)[0] == Range(100, 100)


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


def test_the_hours_that_a_paper_prints_give_the_speed_of_its_own_recipes(root):
    """octic, Table 10, of which every row but the total has its recipes."""
    full = catalog_of("full")
    (_, costs), (_, faster) = costs_on(full, "a100"), costs_on(full, "h100")
    paper = full.paper("octic")
    hours = {
        "dinov2-vit-l": (384, 384),
        "dinov2-h8-h": (960, 1056),
        "i8-h": (1760, 1856),
        "d8-l-linear": (768, 768),
    }
    for name, printed in hours.items():
        run = paper.run(name)
        assert costs.speed(run)[1] == "the paper"
        assert costs.seconds(run).hours == pytest.approx(printed, abs=0.5)
        assert faster.seconds(run).hours == pytest.approx(
            [each * 312 / 989 for each in costs.seconds(run).hours]  # the devices' peaks
        )
    assert costs.speed(paper.run("vit-l"))[1] == "FLOPs"
    assert costs.seconds(paper.run("i8-h-published")) == Range(0, 0)
    rows = [row for cost in paper.info.costs for row in cost.rows]
    table = read_reference(root / "configs/papers/octic/reference/table10.csv")
    assert sorted(rows) == sorted({row for row, _ in table} - {"Total"})
    laptop = catalog_of("laptop")
    assert costs_on(laptop, "a100")[1].speed(laptop.paper("octic").run("i8-h"))[1] == "FLOPs"


def test_an_evaluation_takes_its_forward_passes_at_the_rates_of_the_device(catalog):
    here = catalog("full")
    measurement = here.paper("tiny").measurement("accuracy", "plain")
    device = load_devices(here.root)["a100"]
    costs = Costs(here, device.model_copy(update={"sustained": (2e12, 4e12)}))
    run = measurement.run
    flops = run.dataset.val_images * costs.model(run).forward_flops
    seconds = costs.evaluation_seconds(measurement)
    assert (seconds.low, seconds.high) == pytest.approx((flops / 4e12, flops / 2e12))


def test_a_larger_test_size_costs_what_the_model_costs_there(root):
    """Attention grows with the square of the tokens, so the cost by more than their number."""
    here = catalog_of("full")
    measurement = here.paper("variance").measurement("rescaling", "augreg-vit_s")
    costs = Costs(here, load_devices(root)["a100"])
    one = measurement.args | {"sizes": [224]}
    two = measurement.args | {"sizes": [448]}
    small, large = (costs.evaluation_seconds(_with(measurement, args)).low for args in (one, two))
    assert 4.2 * small < large < 6 * small


def _with(measurement, args):
    return measurement.model_copy(update={"args": args})


def test_probes_are_priced_with_the_images_that_they_learn_from(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measurement = here.paper("octic").measurement("voc2012", "dinov2-vit-l")
    flops = (1464 + 1449) * costs.model(measurement.run).forward_flops
    seconds = costs.evaluation_seconds(measurement)
    assert seconds.low == pytest.approx(flops / costs.device.sustained[1])


def test_every_evaluation_of_a_table_fits_in_the_time_that_its_job_asks_for(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    artifacts = [here.paper("octic").artifacts[f"table{number}"] for number in (3, 7, 9)]
    measured = [measurement for measurement in here.measurements_of(*artifacts) if measurement.run]
    assert len(measured) > 36 + 24
    for measurement in measured:
        limit = 60 * here.resources(measurement).runtime
        assert 0 < costs.evaluation_seconds(measurement).high < limit, (
            measurement.name,
            measurement.run.name,
        )


def test_two_views_of_one_photograph_cost_two_passes_whatever_is_judged(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    measurement = here.paper("shift").measurement("token_consistency", "swin_t-cifar10-circular")
    flops = 2 * costs.model(measurement.run).forward_flops
    assert costs.evaluation_seconds(measurement).low == pytest.approx(
        flops / costs.device.sustained[1]
    )
