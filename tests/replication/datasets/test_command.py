import json
import subprocess
import sys
from pathlib import Path

import pytest


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "vitrail", "fetch", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_bundled_dataset_leaves_a_receipt_at_once(tmp_path):
    receipt = tmp_path / ".verified" / "digits.json"
    done = command("digits", "--data", tmp_path, "--receipt", receipt)
    assert done.returncode == 0, done.stderr
    assert json.loads(receipt.read_text()) == {
        "dataset": "digits",
        "version": 1,
        "verified": ["layout", "counts"],
        "images": {"train": 1198, "val": 599},
    }


def test_a_dataset_is_looked_for_where_the_settings_say(tmp_path, monkeypatch, vitrail):
    registry = Path("configs/datasets.yaml").absolute()
    settings = Path("configs/default.yaml").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    moved = settings.replace("data_root: data", "data_root: elsewhere/data")
    (tmp_path / "configs" / "default.yaml").write_text(moved)
    told = vitrail("fetch", "cifar10", "--check", "--registry", registry)
    assert "is not in elsewhere/data/" in told.err
    told = vitrail("fetch", "cifar10", "--check", "--registry", registry, "--data", "given")
    assert "is not in given/" in told.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cifar11"], "dataset 'cifar11' is unknown; did you mean 'cifar10'?"),
        (["imagenet"], "get it from https://image-net.org/download.php"),
        (["cifar10", "--check"], "run `vitrail fetch cifar10 --data"),
        (["digits", "--registry", "nowhere.yaml"], "cannot read nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_receipt(tmp_path, arguments, said):
    receipt = tmp_path / "receipt.json"
    done = command(*arguments, "--data", tmp_path / "data", "--receipt", receipt)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not receipt.exists()
