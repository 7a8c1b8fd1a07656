import json
import resource
from contextlib import contextmanager

import pytest
import torch

from replication.training.checkpoint import Checkpoints
from tests.malice import ATTACKS
from vitrail.errors import VitrailError
from vitrail.files import sha256


@pytest.fixture
def checkpoints(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", "0123abcd", seed=4, data="89ef")


def state(step: int) -> dict:
    """20 kB and a few plain containers."""
    return {"model": {"weight": torch.arange(5000.0) + step}, "optimizer": {"groups": [{"lr": 1}]}}


@contextmanager
def files_of_at_most(size: int):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_a_checkpoint_comes_back_as_it_was_saved(checkpoints):
    path = checkpoints.save(123, state(123))
    assert path.name == "step-00000123.pt"
    assert checkpoints.latest() == path
    step, loaded = checkpoints.load(path)
    assert step == 123
    assert loaded["optimizer"] == state(123)["optimizer"]
    assert torch.equal(loaded["model"]["weight"], state(123)["model"]["weight"])


def test_a_run_without_checkpoints_has_no_latest(checkpoints):
    assert checkpoints.latest() is None


def test_the_last_two_checkpoints_are_kept(checkpoints):
    for step in (1, 2, 10):
        checkpoints.save(step, state(step))
    assert names(checkpoints) == [
        "step-00000002.json",
        "step-00000002.pt",
        "step-00000010.json",
        "step-00000010.pt",
    ]


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose_the_seal(path):
    path.with_suffix(".json").unlink()


def spoil_the_seal(path):
    path.with_suffix(".json").write_text('{"step": 2')


def reseal(path):
    seal = json.loads(path.with_suffix(".json").read_text())
    seal |= {"bytes": path.stat().st_size, "sha256": sha256(path)}
    path.with_suffix(".json").write_text(json.dumps(seal))


def seal_nonsense(path):
    path.write_bytes(b"nobody could have saved this")
    reseal(path)


def seal_half(path):
    truncate(path)
    reseal(path)


def seal_another_object(path):
    torch.save([1, 2], path)
    reseal(path)


DAMAGES = [
    seal_nonsense,
    seal_half,
    seal_another_object,
    truncate,
    empty,
    flip_a_bit,
    lose_the_seal,
    spoil_the_seal,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(checkpoints, capsys, damage):
    sound = checkpoints.save(1, state(1))
    damaged = checkpoints.save(2, state(2))
    damage(damaged)
    assert checkpoints.latest() == sound
    warning = capsys.readouterr().err
    assert str(damaged) in warning
    assert warning.count("\n") == 1
    assert names(checkpoints) == ["step-00000001.json", "step-00000001.pt"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_sealed_checkpoint_that_would_run_code_is_passed_over(checkpoints, tmp_path, attack):
    sound, evil = checkpoints.save(1, state(1)), checkpoints.save(2, state(2))
    attack(evil, tmp_path / "made")
    reseal(evil)
    assert checkpoints.latest() == sound
    assert not (tmp_path / "made").exists()


def test_a_folder_in_the_place_of_a_checkpoint_is_none(checkpoints):
    sound = checkpoints.save(1, state(1))
    (checkpoints.folder / "step-00000002.pt").mkdir()
    assert checkpoints.latest() == sound
    with pytest.raises(VitrailError, match=r"cannot write .*step-00000002\.pt"):
        checkpoints.save(2, state(2))
    checkpoints.save(3, state(3))
    assert checkpoints.latest().name == "step-00000003.pt"


def test_the_bytes_are_checked_before_they_are_unpickled(checkpoints, monkeypatch):
    flip_a_bit(checkpoints.save(1, state(1)))
    monkeypatch.setattr(torch, "load", lambda *a, **k: pytest.fail("unpickled"))
    with pytest.raises(VitrailError):
        checkpoints.latest()


def test_if_all_are_damaged_the_message_says_what_to_delete(checkpoints):
    for step in (1, 2):
        truncate(checkpoints.save(step, state(step)))
    with pytest.raises(VitrailError, match=r"every checkpoint .* delete that folder"):
        checkpoints.latest()
    assert len(names(checkpoints)) == 4  # the evidence stays


@pytest.mark.parametrize(
    "other", [("ffffffff", 4, "89ef"), ("0123abcd", 5, "89ef"), ("0123abcd", 4, "ffff")]
)
def test_the_checkpoint_of_another_recipe_or_seed_or_other_data_is_refused(checkpoints, other):
    checkpoints.save(1, state(1))
    with pytest.raises(VitrailError, match=r"is of recipe 0123abcd, seed 4, .*, not of recipe"):
        Checkpoints(checkpoints.folder, *other).latest()


@pytest.mark.parametrize("started", ["one", None])
def test_a_checkpoint_is_refused_where_the_weights_at_the_start_are_known_to_be_others(
    checkpoints, started
):
    """Of a training that has not noted them, as older code, nothing is known."""
    owner = (checkpoints.folder, "0123abcd", 4, "89ef")
    saved = Checkpoints(*owner, started).save(1, state(1))
    assert Checkpoints(*owner, started).latest() == saved
    if started is None:
        assert Checkpoints(*owner, "other").latest() == saved
    else:
        with pytest.raises(VitrailError, match="was trained from other weights than"):
            Checkpoints(*owner, "other").latest()


@pytest.mark.parametrize("limit", [0, 100, 5_000, 20_500])
def test_a_full_disk_leaves_the_old_checkpoint_and_no_debris(checkpoints, limit):
    old = checkpoints.save(1, state(1))
    before = names(checkpoints)
    with (
        files_of_at_most(limit),
        pytest.raises(VitrailError, match=r"cannot write .*step-00000002"),
    ):
        checkpoints.save(2, state(2))
    assert names(checkpoints) == before
    assert checkpoints.latest() == old


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(VitrailError, match=r"cannot write .*checkpoints"):
        Checkpoints(tmp_path / "checkpoints", "0123abcd", 4, "89ef").save(1, state(1))


def test_what_a_kill_left_half_written_is_cleared(checkpoints):
    kept = checkpoints.save(1, state(1))
    (checkpoints.folder / ".step-00000002.pt.4242.tmp").write_bytes(b"half")
    assert checkpoints.latest() == kept
    assert names(checkpoints) == ["step-00000001.json", "step-00000001.pt"]


def test_a_seal_without_its_checkpoint_is_the_trace_of_a_kill_and_no_damage(checkpoints, capsys):
    kept = checkpoints.save(1, state(1))
    seal = kept.with_suffix(".json").read_text()
    (checkpoints.folder / "step-00000002.json").write_text(seal)
    assert checkpoints.latest() == kept
    assert capsys.readouterr().err == ""
