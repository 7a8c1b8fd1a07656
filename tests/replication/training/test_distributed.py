"""Two real processes over gloo, started once for all tests here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from replication.config.settings import TrainingOptions
from replication.training.distributed import Team
from replication.training.run_folder import read_finished
from vitrail.errors import VitrailError

pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
from pathlib import Path
from replication.config.datasets import DatasetInfo
from vitrail.errors import VitrailError
from replication.config.recipes.classification import ClassificationRecipe
from replication.config.recipe import Batch
from replication.config.settings import TrainingOptions
from replication.training.dispatch import TrainingRun
from replication.training.loop import train
from replication.training.distributed import Team

folder, recipe = Path(sys.argv[1]), ClassificationRecipe.model_validate_json(sys.argv[2])
info = DatasetInfo.model_validate_json(sys.argv[3])
facts = {}

unshared = {"recipe": recipe.model_copy(update={"batch": Batch(size=256, micro=256)})}

def go(name, seed=0, recipe=recipe, **options):
    train(TrainingRun(recipe, seed, folder / name, info, folder, **options))

# Two seeds in one process, the first of them interrupted and resumed.
go("two", stop_after=3, options=TrainingOptions(validate_every=1))
go("two", options=TrainingOptions(validate_every=1))
go("other", seed=1, stop_after=1)
go("two")

# An error of rank zero stops both.
(folder / "file").write_text("")
try:
    go("file")
except VitrailError as error:
    facts["error"] = str(error)
except SystemExit as stop:
    facts["exit"] = stop.code

def reason(work):
    try:
        work()
    except VitrailError as error:
        return str(error)
    except SystemExit as stop:
        return stop.code

def odd():
    if team.rank == 1:
        raise VitrailError("only in 1")

team = Team.assemble("cpu")
facts["everywhere"] = reason(lambda: go("unshared", **unshared))
facts["somewhere"] = reason(lambda: team.on_all_ranks(odd))
facts["nowhere"] = team.on_all_ranks(lambda: team.rank)
facts["largest"] = team.largest(team.rank, 5 - team.rank)
facts["told"] = team.on_rank_zero(lambda: f"from {team.rank}")
(folder / f"facts{team.rank}.json").write_text(json.dumps(facts))
"""
SOBER = {"batch": {"size": 256, "micro": 64}, "ema_decay": None}


@pytest.fixture(scope="module")
def two(tmp_path_factory, make_recipe, info) -> Path:
    """The folder in which two processes have trained."""
    folder = tmp_path_factory.mktemp("two")
    inputs = [make_recipe(SOBER).model_dump_json(), info.model_dump_json()]
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(20000 + os.getpid() % 20000),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), *inputs],
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return folder


def facts(folder: Path, rank: int) -> dict:
    return json.loads((folder / f"facts{rank}.json").read_text())


def test_two_processes_train_what_one_with_accumulation_trains(two, make_recipe, run):
    one = run(make_recipe(SOBER), "one", options=TrainingOptions(validate_every=1))
    mine, theirs = (load_file(path / "weights.safetensors") for path in (one, two / "two"))
    for name, value in mine.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-4, atol=1e-6, msg=name)
    logs = [
        [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        for folder in (one, two / "two")
    ]
    assert len(logs[0]) == len(logs[1]) == 4
    for mine, theirs in zip(*logs, strict=True):
        told = [name for name in mine if name != "images_per_second"]
        # Each has judged its half; rounding may turn the prediction of an image.
        assert [mine[name] for name in told] == pytest.approx(
            [theirs[name] for name in told], rel=1e-5, abs=0.3 if "loss" not in mine else 0
        )
    assert read_finished(two / "two")["processes"] == 2


def test_an_error_of_rank_zero_stops_all_and_is_reported_once(two):
    assert "cannot write to" in facts(two, 0)["error"]
    assert facts(two, 1)["exit"] == 2


def test_what_every_process_meets_is_told_once(two):
    assert "which 2 devices cannot share" in facts(two, 0)["everywhere"]
    assert facts(two, 1)["everywhere"] == 2


def test_what_one_process_meets_stops_all_and_is_told_by_it(two):
    assert (facts(two, 0)["somewhere"], facts(two, 1)["somewhere"]) == (2, "only in 1")
    assert (facts(two, 0)["nowhere"], facts(two, 1)["nowhere"]) == (0, 1)


def test_all_ranks_get_the_result_of_rank_zero_and_the_largest_values(two):
    assert facts(two, 0)["largest"] == facts(two, 1)["largest"] == [1, 5]
    assert facts(two, 0)["told"] == facts(two, 1)["told"] == "from 0"


def test_a_process_alone_agrees_with_itself():
    alone = Team.assemble("cpu")
    assert alone.is_rank_zero
    assert alone.largest(3, 1) == [3, 1]
    assert alone.on_all_ranks(lambda: "mine") == "mine"
    assert alone.on_rank_zero(lambda: "mine") == "mine"
    assert torch.equal(alone.mean(torch.ones(2)), torch.ones(2))
    with pytest.raises(VitrailError, match="as it is"):
        alone.on_rank_zero(lambda: (_ for _ in ()).throw(VitrailError("as it is")))
