import json
import math
import re

import pytest
import yaml

from replication.cluster.partition_file import CONFIG, PARTITIONS, PROFILE
from replication.plan.catalog import load_catalog
from replication.pricing.estimate import runs_of_row, training_work
from replication.pricing.speed import Costs, load_devices, training_images
from replication.report.progress import share_left
from tests.conftest import catalog_of, rows_of
from vitrail.provenance import duration


def line(text, start):
    """The cells of the line that begins so."""
    found = [line for line in text.splitlines() if line.startswith(start)]
    assert len(found) == 1, text
    return found[0].split()


def checkpoint(run, step):
    path = run.folder / "checkpoints" / f"step-{step:08d}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_trainings_are_done_resumable_or_missing_by_their_files(vitrail, catalog):
    here = catalog()
    plain, mixup = (here.paper("tiny").run(name) for name in ("plain", "mixup"))
    weights = plain.folder / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.touch()
    plain.record.write_text("{}")
    checkpoint(mixup, 3)
    here.paper("tiny").measurement("facts", None).path.parent.mkdir(parents=True)
    here.paper("tiny").measurement("facts", None).path.write_text("{}")
    out = vitrail("plan", "tiny_table1", "--scale", "small").out
    assert line(out, "train") == ["train", "1", "1", "0"]
    assert line(out, "evaluate") == ["evaluate", "0", "0", "2"]
    assert line(out, "benchmark") == ["benchmark", "1", "0", "0"]
    assert line(out, "render") == ["render", "0", "0", "1"]
    plain.record.unlink()
    out = vitrail("plan", "tiny_table1", "--scale", "small").out
    assert line(out, "train") == ["train", "0", "2", "0"]
    plain.record.write_text("{}")
    weights.unlink()  # as of a restored record: Snakemake does not train it again
    out = vitrail("plan", "tiny_table1", "--scale", "small").out
    assert line(out, "train") == ["train", "1", "1", "0"]


def test_a_run_that_rows_share_is_counted_once_in_the_total(catalog):
    here = catalog("full")
    table = here.paper("tiny").artifacts["table1"]
    costs = Costs(here, load_devices(here.root)["a100"])
    rows = [training_work(runs_of_row(table, row, here), costs).whole.high for row in table.rows]
    total = training_work(here.runs_of(table), costs).whole.high
    assert len(rows) == 3
    assert rows[0] == rows[2]
    assert total == pytest.approx(rows[0] + rows[1])


def test_a_shared_run_counts_once_and_a_source_counts_too(vitrail, catalog, fine_tuning):
    out = vitrail("plan", "tiny_table2", "--scale", "small").out
    assert line(out, "train") == ["train", "0", "0", "2"]
    assert line(out, "evaluate") == ["evaluate", "0", "0", "2"]
    assert line(out, "benchmark") == ["benchmark", "0", "0", "2"]
    table = catalog().paper("tiny").artifacts["table2"]
    assert [run.name for run in runs_of_row(table, "Tuned", catalog())] == ["plain", "tuned"]
    assert [run.name for run in runs_of_row(table, "Again", catalog())] == ["plain"]
    assert line(out, "Tuned")[1] == line(out, "total,")[4] == "2"


def test_the_time_of_a_job_is_that_of_the_gpus_of_its_own_pattern(vitrail, checkout):
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    full.write_text('runs: {"mix*": {resources: {train: {gpus: 2}}}}')
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert line(out, "mixup")[-1] == "2"
    assert line(out, "plain")[-1] == "8"


def test_a_job_that_may_not_fit_into_its_time_limit_is_told_with_a_remedy(vitrail, checkout):
    """The limit is compared with the upper bound, shared by the GPUs of the job."""
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"

    def told(gpus, minutes):
        limits = {"gpus": gpus, "runtime": minutes}
        runs = {"mixup": {"resources": {"train": limits, "evaluate": limits}}}
        recipes = {"mixup": {"schedule": {"epochs": 10**6}}}
        full.write_text(json.dumps({"recipes": recipes, "runs": runs}))
        out = vitrail("plan", "tiny_table1", "--scale", "full", "--json").out
        return json.loads(out)["over_time_limit"]

    assert told(1, 10**6) == []
    here = load_catalog(scale="full")
    costs = Costs(here, load_devices(here.root)["a100"])
    minutes = costs.seconds(here.paper("tiny").run("mixup")).high / 60
    (sentence,) = told(1, int(minutes / 2) + 1)
    assert sentence.startswith("tiny/mixup takes ")
    assert "goes on from the checkpoints in up to 2 jobs" in sentence
    assert told(2, int(minutes / 2) + 1) == []
    few = int(minutes / 8) + 1
    assert "in up to 4 jobs" in told(2, few)[0]
    (checkout / PROFILE).mkdir(parents=True)
    (checkout / CONFIG).write_text("retries: 3\n")
    train = {"gpus": 2, "runtime": few}
    runs = {name: {"resources": {"train": train}} for name in ("mixup", "plain")}
    recipes = {name: {"schedule": {"epochs": 10**6}} for name in runs}
    full.write_text(json.dumps({"recipes": recipes, "runs": runs}))
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    _, _, told_once = out.partition("Jobs that may not fit into their time limits")
    jobs = re.findall(r"^tiny/(\w+): .* on 2 GPUs, limit", told_once, re.MULTILINE)
    assert {*jobs} == {"mixup", "plain"}
    assert told_once.count("in up to 4 jobs") == 1


def test_one_number_of_retries_is_enough_for_all_trainings(vitrail, checkout):
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    here = load_catalog(scale="full")
    seconds = Costs(here, load_devices(here.root)["a100"]).seconds(here.paper("tiny").run("mixup"))
    epochs = {"mixup": 4 * 10**6, "plain": 2 * 10**6}  # of three at first
    limit = {"gpus": 8, "runtime": int(seconds.high / 3 * 10**6 / 60 / 8) + 1}
    full.write_text(
        json.dumps(
            {
                "recipes": {name: {"schedule": {"epochs": n}} for name, n in epochs.items()},
                "runs": {"*": {"resources": {"train": limit}}},
            }
        )
    )

    def planned(retries):
        (checkout / CONFIG).parent.mkdir(exist_ok=True)
        (checkout / CONFIG).write_text(f"retries: {retries}\n")
        return vitrail("plan", "tiny_table1", "--scale", "full").out

    for retries, asked in ((2, ["3"]), (3, [])):
        assert re.findall(r"--retries (\d+)", planned(retries)) == asked
    told = json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)
    assert told["retries"] == {"needed": 3, "allowed": 3}
    (checkout / CONFIG).write_text("retries: many\n")
    done = vitrail("plan", "tiny_table1", "--scale", "full")
    assert (done.code, f"{CONFIG}:1: 'retries'" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("gpus", "nodes", "retries", "most", "offered"),
    [
        *((2, 1, 0, 8, 4), (2, 1, 1, 8, 2), (2, 2, 0, 8, 4), (4, 1, 0, 8, 2)),
        (2, 1, 3, 8, None),  # its four jobs need no more retries
        (2, 1, 0, 2, None),  # two nodes are not enough, and more have no room
    ],
)
def test_more_nodes_are_offered_where_they_alone_are_enough(
    vitrail, checkout, gpus, nodes, retries, most, offered
):
    """A step is eight micro-batches; on eight GPUs the training ends within one job."""
    (checkout / PROFILE).mkdir(parents=True)
    (checkout / CONFIG).write_text(f"retries: {retries}\n")
    limits = {"cpu": {}, "gpu": {"max_gpu": 8, "max_nodes": most}}
    (checkout / PARTITIONS).write_text(json.dumps({"partitions": limits}))
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    recipes = {"mixup": {"schedule": {"epochs": 10**6}}}
    full.write_text(json.dumps({"recipes": recipes}))
    here = load_catalog(scale="full")
    costs = Costs(here, load_devices(here.root)["a100"])
    minutes = costs.seconds(here.paper("tiny").run("mixup")).high / 60 / 8

    def planned(nodes):
        train = {"gpus": gpus, "nodes": nodes, "runtime": int(minutes) + 1}
        runs = {"mixup": {"resources": {"train": train}}}
        full.write_text(json.dumps({"recipes": recipes, "runs": runs}))
        return json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)

    (sentence,) = planned(nodes)["over_time_limit"]
    line = re.search(r" in (\S+\.yaml): (runs: .*)\.$", sentence)
    assert (line is not None) == (offered is not None)
    if line:
        assert checkout / line[1] == full
        written = yaml.safe_load(line[2])["runs"]["mixup"]["resources"]["train"]
        assert written == {"nodes": offered}
        assert planned(offered)["retries"]["needed"] <= retries


def test_a_number_of_devices_that_snakemake_refuses_is_refused(vitrail, checkout):
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    full.write_text(json.dumps({"runs": {"mixup": {"resources": {"train": {"gpus": 3}}}}}))
    assert vitrail("plan", "tiny_table1", "--scale", "full").code == 2
    assert vitrail("plan", "tiny_table2", "--scale", "full").code == 0  # without that training


def test_a_time_limit_is_that_of_the_partition_where_this_is_shorter(vitrail, checkout):
    (checkout / PROFILE).mkdir(parents=True)
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    recipes = {"mixup": {"schedule": {"epochs": 10**6}}}
    runs = {"*": {"resources": {"train": {"gpus": 1, "runtime": 10**6}}}}
    full.write_text(json.dumps({"recipes": recipes, "runs": runs}))

    def told(minutes, *shorter):
        limits = {"cpu": {}, "gpu": {"max_gpu": 8, "max_runtime": minutes}}
        limits |= {f"short-{other}": {"max_gpu": 8, "max_runtime": other} for other in shorter}
        (checkout / PARTITIONS).write_text(json.dumps({"partitions": limits}))
        out = vitrail("plan", "tiny_table1", "--scale", "full", "--json").out
        return json.loads(out)["over_time_limit"]

    assert told(525_600) == []
    here = load_catalog(scale="full")
    costs = Costs(here, load_devices(here.root)["a100"])
    run = here.paper("tiny").run("mixup")
    minutes = costs.seconds(run).high / 60
    limit = int(minutes / 3)
    (sentence,) = (line for line in told(limit) if line.startswith("tiny/mixup takes"))
    assert f"in up to {math.ceil(minutes / limit)} jobs" in sentence
    assert f"{duration(60 * limit)} in gpu:" in sentence
    (sentence,) = (line for line in told(limit, 1) if line.startswith("tiny/mixup takes"))
    assert f"{duration(60 * limit)} in gpu:" in sentence  # not in the one of a minute


def test_jobs_that_fit_into_no_partition_are_told_and_get_no_time_limit(vitrail, checkout):
    (checkout / PROFILE).mkdir(parents=True)
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    recipes = {"mixup": {"schedule": {"epochs": 10**6}}}
    runs = {"mixup": {"resources": {"train": {"gpus": 2, "runtime": 1}}}}
    full.write_text(json.dumps({"recipes": recipes, "runs": runs}))

    def told(limits):
        """The jobs without room, and the trainings over their time limit."""
        (checkout / PARTITIONS).write_text(json.dumps({"partitions": {"cpu": {}, "gpu": limits}}))
        found = json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)
        jobs = ("tiny/plain", "tiny/mixup", "tiny/accuracy of plain", "tiny/facts")
        lines = "\n".join(found["without_room"])
        assert ("the largest max_gpu is 4)" in lines) == (limits == {"max_gpu": 4})
        for limit, value in (("max_mem_mb", 399_999), ("max_nodes", 0)):
            told_limit = f"the largest {limit} of partitions with at least 8 GPUs is {value}"
            assert (told_limit in lines) == (limit in limits)
        late = [line.split()[0] for line in found["over_time_limit"]]
        return [job for job in jobs if job in lines], late

    assert told({"max_gpu": 8}) == ([], ["tiny/mixup"])
    assert told({"max_gpu": 4}) == (["tiny/plain"], ["tiny/mixup"])
    assert told({"max_gpu": 1}) == (["tiny/plain", "tiny/mixup"], [])
    assert told({"max_gpu": 8, "max_mem_mb": 399_999}) == (["tiny/plain", "tiny/mixup"], [])
    assert "tiny/plain" in told({"max_gpu": 8, "max_nodes": 0})[0]
    without_gpus = told({})
    assert {"tiny/plain", "tiny/mixup", "tiny/accuracy of plain"} <= {*without_gpus[0]}
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert "Jobs that fit into no partition" in out
    out = vitrail("plan", "all", "--scale", "small").out
    assert "Jobs that fit into no partition" not in out
    assert "Each job fits" not in out  # jobs of this scale are not submitted
    (checkout / PARTITIONS).write_text("partitions: {cpu: {}, gpu: {max_gpu: 8}}")
    full.write_text("{}")
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert "Each job fits" in out
    for limit in ("max_runtime", "max_threads", "max_mem_mb"):
        assert f"{limit} of cpu, gpu" in " ".join(out.split())
    limits = {"max_gpu": 8, "max_runtime": 2880, "max_threads": 80, "max_mem_mb": 400_000}
    (checkout / PARTITIONS).write_text(json.dumps({"partitions": {"gpu": limits}}))
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert ("Each job fits" in out, "Not set in" in out) == (True, False)


@pytest.mark.parametrize(
    ("limit", "resource", "value"),
    [("max_gpu", "gpus", 4), ("max_threads", "threads", 40), ("max_mem_mb", "mem_mb", 200_000)],
)
def test_what_exceeds_all_partitions_is_told_with_the_line_that_sets_it(
    vitrail, checkout, limit, resource, value
):
    """A training has its threads from a line of the paper, and all else from the scale."""
    (checkout / PROFILE).mkdir(parents=True)
    limits = {"max_gpu": 8, limit: value}
    (checkout / PARTITIONS).write_text(json.dumps({"partitions": {"gpu": limits}}))
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    full.write_text("runs:\n  '*':\n    resources: {train: {threads: 64}}\n")

    def told():
        found = json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)
        return found["without_room"]

    (sentence,) = told()
    path, line = re.search(rf"lower {resource} in (\S+):(\d+)$", sentence).groups()
    lines = (checkout / path).read_text().splitlines()
    row = int(line) - 1
    lines[row] = re.sub(rf"(train: .*{resource}): \d+", rf"\1: {value}", lines[row])
    (checkout / path).write_text("\n".join(lines))
    assert told() == []


def test_what_is_left_is_divided_among_the_cores_of_a_cpu_alone(vitrail):
    said = "divided among the"
    assert said in vitrail("plan", "tiny_table1", "--scale", "small").out
    assert said not in vitrail("plan", "tiny_table1", "--scale", "small", "--device", "a100").out


def test_more_cores_than_trainings_save_no_time(vitrail, monkeypatch):
    def told(cores):
        monkeypatch.setattr("replication.pricing.estimate.usable_cores", lambda: cores)
        out = vitrail("plan", "tiny_table1", "--scale", "small").out
        return re.search(r"divided among the \d+ cores of this machine: (.*?)\. ", out)[1]

    assert told(1) != told(1000) == told(1_000_000)


@pytest.mark.slow
def test_an_evaluation_that_may_not_fit_into_its_time_limit_is_told_with_a_remedy(
    vitrail, checkout
):
    full = checkout / "configs" / "papers" / "tiny" / "scales" / "full.yaml"
    model = {"name": "vit_huge_patch14_224", "args": {"img_size": 224, "embed_dim": 1280}}
    model["args"] |= {"depth": 32, "num_heads": 16}
    recipes = {"mixup": {"model": model, "data": {"image_size": 224}}}
    runs = {"mixup": {"resources": {"evaluate": {"gpus": 1, "runtime": 1}}}}
    full.write_text(json.dumps({"recipes": recipes, "runs": runs}))
    out = vitrail("plan", "tiny_table1", "--scale", "full", "--json").out
    (sentence,) = json.loads(out)["over_time_limit"]
    here = load_catalog(scale="full")
    measurement = here.paper("tiny").measurement("accuracy", "mixup")
    costs = Costs(here, load_devices(here.root)["a100"])
    minutes = math.ceil(costs.evaluation_seconds(measurement).high / 60)
    assert "of mixup takes" in sentence
    path, _, line = sentence.removesuffix(".").rpartition(" in ")[2].partition(": ")
    assert checkout / path == full
    written = yaml.safe_load(line)["runs"]
    assert written["mixup"]["resources"]["evaluate"]["runtime"] == minutes
    gpus = runs["mixup"]["resources"]["evaluate"]["gpus"]
    written["mixup"]["resources"]["evaluate"]["gpus"] = gpus  # as it was
    full.write_text(json.dumps({"recipes": recipes, "runs": written}))
    out = vitrail("plan", "tiny_table1", "--scale", "full", "--json").out
    assert json.loads(out)["over_time_limit"] == []


def test_a_terminal_of_100_columns_holds_table_1_with_a_line_a_row(terminal):
    lines = terminal("plan", "shift_table1", "--scale", "full")
    rows = rows_of(lines)
    assert max(map(len, rows)) <= 100
    assert not [row for row in rows if row.startswith(" ")]


def test_rows_that_the_paper_lacks_are_priced_apart_where_a_scale_leaves_them_out(
    vitrail, checkout
):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text() + "ours: [mixup]\n")

    def planned():
        """The runs to train, the hours of all runs and of ours, and whether they are counted."""
        found = json.loads(vitrail("plan", "tiny_table1", "--scale", "full", "--json").out)
        ours = found["training_hours_of_ours"]
        number = found["steps"]["train"]["missing"]
        return number, found["training_hours"]["all"][1], ours["all"][1], ours["counted"]

    number, hours, of_ours, counted = planned()
    assert (number, counted) == (1, False)
    assert of_ours == pytest.approx(hours)  # mixup trains as long as plain
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert "Not counted are rows that the papers lack: 1 run" in out
    assert re.search(r"^Plain ", out, re.MULTILINE)
    assert not re.search(r"^Mixup ", out, re.MULTILINE)  # a row of zeros
    settings = checkout / "configs" / "default.yaml"
    settings.write_text(settings.read_text().replace("extensions: null", "extensions: true"))
    assert planned() == (2, pytest.approx(2 * hours), pytest.approx(of_ours), True)
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert "Of these are for rows that the papers lack" in out
    assert re.search(r"^Mixup ", out, re.MULTILINE)


def test_hours_are_images_of_all_seeds_over_speed(catalog):
    here = catalog("laptop")
    run = here.paper("tiny").run("plain")
    device = load_devices(here.root)["cpu"]
    flops = Costs(here, device).training_flops(run)
    costs = Costs(here, device.model_copy(update={"sustained": (100 * flops, 100 * flops)}))
    work = training_work(here.paper("tiny").runs("plain"), costs)
    assert work.whole.high == work.left.high == pytest.approx(3 * training_images(run) / 100)


def test_what_a_checkpoint_holds_is_not_still_to_do(catalog):
    run = catalog().paper("tiny").run("plain")  # one epoch of 1198 // 64 = 18 steps
    checkpoint(run, 6)
    checkpoint(run, 9)
    assert share_left(run) == pytest.approx(0.5)
    (run.folder / "weights.safetensors").touch()
    assert share_left(run) == 0


def test_the_plan_names_the_source_of_its_speed_and_what_is_missing(vitrail):
    done = vitrail("plan", "tiny", "--scale", "full")
    assert done.code == 0
    assert "two to three days per training" in done.out
    assert "NVIDIA A100" in done.out
    assert "total, each run once" in done.out
    assert "1 run of zero epochs" in done.out
    assert "published weights of vit_tiny_patch16_224" in done.out
    assert "Dataset missing: dataset 'imagenet' is not in" in done.out


def test_a_download_is_listed_with_its_size(vitrail, checkout):
    recipes = checkout / "configs" / "papers" / "tiny" / "recipes.yaml"
    recipes.write_text(recipes.read_text().replace("dataset: imagenet", "dataset: cifar10"))
    out = vitrail("plan", "tiny_table1", "--scale", "full").out
    assert "download of cifar10" in out
    assert "170.5 MB" in out


def test_an_unknown_device_is_answered_with_the_closest(vitrail):
    done = vitrail("plan", "tiny", "--device", "a10")
    assert done.code == 2
    assert "device 'a10' is unknown; did you mean 'a100'? (for another GPU, add" in done.err


def test_a_weekend_on_one_gpu_takes_the_hours_that_its_page_says(root):
    here = load_catalog(scale="workstation")
    costs = Costs(here, load_devices(root)["a100"])
    page = (root / "docs" / "cluster.md").read_text()
    for name in (*(name for name, paper in here.papers.items() if paper.artifacts), "all"):
        runs = here.runs_of(*here.target(name).artifacts)
        hours = training_work(runs, costs).whole.times(1 / 3600)
        said = f"{hours.low:.2g} to {hours.high:.2g}"
        assert re.search(rf"^\| `?{name}`? \|.*\| {said} \|$", page, re.MULTILINE), (name, said)
    assert float(f"{hours.high:.2g}") <= 48  # to the digits that the page has


def test_the_papers_own_trainings_take_the_hours_that_their_pages_say(root):
    here = catalog_of("full")
    costs = Costs(here, load_devices(root)["a100"])
    for page in (root / "docs" / "papers").glob("*.md"):
        runs = here.runs_of(*here.target(page.stem).artifacts)
        hours = training_work(runs, costs).whole.times(1 / 3600)
        low, high = (f"{float(f'{bound:.2g}'):,.0f}" for bound in (hours.low, hours.high))
        assert f"{low} to {high} hours of one A100" in page.read_text(), page.stem


def test_a_job_of_a_workstation_takes_one_gpu_at_most_and_is_on_one_node():
    here = catalog_of("workstation")
    asked = [here.resources(node) for node in (*here.runs.values(), *here.measurements.values())]
    assert {(each.nodes, each.gpus) for each in asked} == {(1, 0), (1, 1)}


def test_a_target_of_nothing_at_a_scale_is_refused_in_a_sentence(vitrail, catalog, checkout):
    folder = checkout / "configs" / "papers" / "tiny" / "scales"
    folder.mkdir(exist_ok=True)
    (folder / "full.yaml").write_text("artifacts: []\n")
    done = vitrail("plan", "tiny", "--scale", "full")
    assert done.code == 2
    assert "scale 'full' does not make 'tiny'; give one of the scales that do" in done.err
    done = vitrail("plan", "figures", "--scale", "full")
    assert done.code == 2
    assert "figures has no table or figure at scale 'full'; choose another target" in done.err


def test_a_plan_of_several_targets_counts_what_they_share_once(vitrail, catalog, fine_tuning):
    figures = [
        json.loads(vitrail("plan", *names, "--scale", "full", "--json").out)
        for names in (["tiny_table1"], ["tiny_table2"], ["tiny_table1", "tiny_table2"])
    ]
    one, other, both = figures
    assert both["targets"] == ["tiny_table1", "tiny_table2"]
    assert both["steps"]["train"]["missing"] == 3  # plain, mixup, tuned
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
    done = vitrail("plan", "octic_published", "variance_table3", "--scale", "full")
    assert "octic_published, variance_table3 at scale full" in done.out
    assert "7 runs of zero epochs" in done.out
    assert "Evaluation hours of one NVIDIA A100" in done.out
    assert "octic/rotation" in done.out
    assert "variance/rescaling" in done.out
