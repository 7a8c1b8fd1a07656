"""A measurement that is repeated must give the values that its record has, bit by bit."""

import math

import pytest

from replication.commands import retaking
from replication.commands.retaking import differences
from replication.plan.schema import as_yaml, read_yaml

NUMBERS = {"plain": [80.0, 81.0, 82.0], "mixup": [70.0, 71.0, 72.0]}


@pytest.fixture
def repeat(make, vitrail, monkeypatch):
    """Repeat all measurements where the functions give these accuracies, and this fact for 0.5."""

    def run(numbers, ratio=None):
        make(NUMBERS, ratio and 0.5)

        def take(node, *, anew):
            assert anew  # of nothing that the first measurement has kept
            if node.name == "facts":
                return {"values": {"0": {"ratio": ratio}}}
            found = numbers[node.recipe_name]
            return {"values": {str(seed): {"top1": found[seed]} for seed in node.seeds}}

        monkeypatch.setattr(retaking, "take", take)
        return vitrail("verify", "--scale", "laptop", "--retake", 5)

    return run


def test_measurements_that_give_the_same_bits_are_verified(repeat):
    done = repeat(NUMBERS)
    assert done.code == 0, done.out
    assert "2 measurements of 2 repeated." in done.out


@pytest.mark.parametrize("number", [24.3, math.nextafter(81.0, 82.0)])
def test_a_value_that_was_made_up_is_found(repeat, number):
    done = repeat({**NUMBERS, "plain": [80.0, number, 82.0]})
    assert done.code == 1
    assert "top1 of seed 1 is 81.0, and now" in " ".join(done.out.split())


def test_a_time_is_not_repeated(repeat, checkout):
    """Another machine, or the same one at another moment, takes another."""
    done = repeat(NUMBERS, ratio=0.7)
    assert done.code == 1
    assert "ratio of seed 0 is 0.5, and now 0.7" in " ".join(done.out.split())
    path = checkout / "configs" / "papers" / "tiny" / "artifacts.yaml"
    artifacts = read_yaml(path)
    column = artifacts["artifacts"]["table1"]["columns"][1]
    column |= {"exact": False, "hardware": True}
    path.write_text(as_yaml(artifacts))
    done = repeat(NUMBERS, ratio=0.7)
    assert done.code == 0, done.out
    assert "2 measurements of 2 repeated." in done.out


def test_a_damaged_record_is_told_with_the_command_that_makes_it_again(make, vitrail):
    catalog = make(NUMBERS)
    path = next(path for path in catalog.measurements if path.is_file())
    path.write_text("")
    done = vitrail("verify", "--scale", "laptop", "--retake", 1)
    assert done.code == 2
    assert f"{catalog.snakemake(str(path))} --forcerun {path} " in " ".join(done.err.split())


def test_a_measurement_that_cannot_be_repeated_is_told_with_the_command(make, vitrail):
    """What was trained is no model: its weights are a text."""
    make(NUMBERS)
    done = vitrail("verify", "--scale", "laptop", "--retake", 1)
    assert done.code == 2
    assert "TARGET" not in done.err
    assert "RECORD" not in done.err


def test_without_measurements_it_says_so(catalog, vitrail):
    done = vitrail("verify", "--scale", "laptop", "--retake", 1)
    assert (done.code, done.out) == (2, "")
    assert f"run {catalog('laptop').snakemake('all')} first" in " ".join(done.err.split())


def test_values_that_are_no_numbers_are_compared_too():
    before = {"0": {"map": [[1.0, float("nan")]], "by image": "eJx", "gone": None}}
    assert differences(before, {"0": {"map": ((1.0, float("nan")),), "by image": "eJx"}}) == []
    assert len(differences(before, {"0": {"map": [[1.0, 2.0]], "by image": "eJy"}})) == 2
