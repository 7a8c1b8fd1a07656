import json
import subprocess
import sys

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
