"""Commands that run as children of a process that has imported everything."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import pytest

from replication.config.recipes.classification import ClassificationRecipe
from replication.config.settings import Resources
from replication.jobs import fork_server
from replication.records.nodes import MeasurementNode, TrainingNode
from replication.records.records import read_record
from replication.records.specs import Measurement, Run
from vitrail.files import Locked, lock

pytestmark = pytest.mark.slow

ONE_THREAD = dict.fromkeys(fork_server.THREADS, "1")
RECIPE = ClassificationRecipe.model_validate(
    {
        "model": {
            "name": "vit_tiny_patch16_224",
            "args": {
                "img_size": 8, "patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2,
                "drop_path_rate": 0.1,
            },
        },
        "data": {"dataset": "digits", "image_size": 8},
        "augmentation": {"scale": [0.5, 1.0], "hflip": 0.0, "mixup": 0.2},
        "optimizer": {"lr": 0.001},
        "schedule": {"epochs": 25, "warmup_epochs": 1},
        "batch": {"size": 256, "micro": 128},
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def address():
    """The socket of a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(fork_server.ADDRESS, "")  # to be put back
        server = fork_server.start()
        yield os.environ[fork_server.ADDRESS]
    server.stdin.close()
    assert server.wait(timeout=150) == 0


def command(*arguments, address="", **options):
    """Start ``python -m vitrail``; without an address it runs by itself."""
    return subprocess.Popen(
        [sys.executable, "-m", "vitrail", *map(str, arguments)],
        env={**os.environ, **ONE_THREAD, fork_server.ADDRESS: address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def nodes(folder, registry):
    """The files of a training in `folder`, and of a measurement on what it trains."""
    common = {
        "scale": "laptop", "inputs": (), "resources": Resources(), "code": "0123456789abcdef",
        "commit": None, "data_root": folder,
    }  # fmt: skip
    own = {"paper": "variance", "seed": 0}
    run = Run(**own, name="tiny", recipe=RECIPE, dataset=registry["digits"], home=folder / "tiny")
    path = run.home / "measurements" / "accuracy.json"
    accuracy = Measurement(
        **own, name="accuracy", function="replication.measures.accuracy:accuracy", args={},
        device="cpu", datasets=(), path=path, run=run,
    )  # fmt: skip
    training = TrainingNode(**common, run=run, device="cpu", output=run.record)
    measurement = MeasurementNode(**common, measurement=accuracy, output=path, workers=0)
    return training.write(), measurement.write()


def until(condition):
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def by_itself(tmp_path_factory, registry):
    """The folder of a run that is trained and measured without a server."""
    folder = tmp_path_factory.mktemp("by_itself")
    for node in nodes(folder, registry):
        assert command("run", node).wait(timeout=150) == 0
    return folder / "tiny"


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, registry, address):
    """The folder of a run that is trained with a server, in two attempts, and measured."""
    folder = tmp_path_factory.mktemp("served")
    training, measurement = nodes(folder, registry)
    first = command("run", training, address=address)
    log = folder / "tiny" / "seed0" / "log.jsonl"
    until(lambda: log.is_file() and log.read_text())
    first.send_signal(signal.SIGUSR1)
    assert first.wait(timeout=150) == 128 + signal.SIGUSR1, first.stderr.read()
    for node in (training, measurement):
        assert command("run", node, address=address).wait(timeout=150) == 0
    return folder / "tiny"


def test_a_signal_reaches_the_training_which_saves_and_is_resumed(interrupted):
    facts = read_record(interrupted / "trained-seed0.json").outcome["facts"]
    assert (facts["attempts"], facts["steps_repeated"]) == (2, 0)


def test_a_training_has_the_bits_of_one_without_a_server(interrupted, by_itself):
    ours, theirs = (run / "seed0" / "weights.safetensors" for run in (interrupted, by_itself))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_measurement_has_the_bits_of_one_without_a_server(interrupted, by_itself):
    ours, theirs = (
        read_record(run / "measurements" / "accuracy.json").outcome
        for run in (interrupted, by_itself)
    )
    for outcome in (ours, theirs):
        del outcome["provenance"]["wall_seconds"]
    assert ours == theirs


def test_below_a_long_tmpdir_the_socket_lies_elsewhere(tmp_path, monkeypatch):
    folder = tmp_path / ("a" * 143)
    folder.mkdir()
    monkeypatch.setattr(fork_server.tempfile, "tempdir", str(folder))
    with fork_server._listener() as listener:
        place = Path(listener.getsockname())
        assert place.is_socket()
        assert folder not in place.parents
    assert not list(folder.iterdir())
    place.unlink()
    place.parent.rmdir()


@pytest.mark.parametrize("missing", ["socket.socket", "subprocess.Popen"])
def test_where_no_server_can_be_started_there_is_none(monkeypatch, missing):
    """As on macOS, which has no such sockets, or without memory for another process."""

    def refuse(*_, **__):
        raise OSError(93, "Protocol not supported")

    monkeypatch.setattr(missing, refuse)
    monkeypatch.setenv(fork_server.ADDRESS, "")
    with tempfile.TemporaryDirectory(dir=fork_server.folder_of_sockets()) as folder:
        monkeypatch.setattr(fork_server, "folder_of_sockets", lambda: folder)
        assert fork_server.start() is None
        assert os.listdir(folder) == []
    assert fork_server.ADDRESS not in os.environ


def test_a_module_that_becomes_older_code_counts_as_changed(tmp_path, monkeypatch):
    """As `rsync -t` puts it there, or a module is removed."""
    package = types.SimpleNamespace(__path__=[str(tmp_path)])
    monkeypatch.setattr(fork_server, "PACKAGES", (package,))
    for name in ("old.py", "new.py"):
        (tmp_path / name).write_text("x = 1\n")
    os.utime(tmp_path / "old.py", ns=(2000, 2000))
    before = fork_server._modules()
    assert fork_server._modules() == before
    os.utime(tmp_path / "old.py", ns=(1000, 1000))
    changed = fork_server._modules()
    assert changed != before
    (tmp_path / "old.py").unlink()
    assert fork_server._modules() not in (before, changed)


@pytest.fixture
def module_of_server(tmp_path, monkeypatch):
    """The one module of a server, in a fork of this process, whose commands exit with 7."""
    file = tmp_path / "module.py"
    file.write_text("x = 1\n")
    package = types.SimpleNamespace(__name__="small", __path__=[str(tmp_path)])
    monkeypatch.setattr(fork_server, "PACKAGES", (package,))
    ours, theirs = socket.socketpair()

    def serve(listener):
        ours.close()
        sys.stdin = theirs  # whose end ends the server
        fork_server.serve(listener, lambda: sys.exit(7))

    with fork_server._listener() as listener, ours, theirs:
        listener.listen()
        server = fork_server.Process(target=serve, args=(listener,))
        server.start()
        for name, value in {**ONE_THREAD, fork_server.ADDRESS: listener.getsockname()}.items():
            monkeypatch.setenv(name, value)
        yield file
    server.join(150)
    assert server.exitcode == 0


@pytest.mark.parametrize("nanoseconds", [1000, 2**62])
def test_a_command_is_not_served_once_a_module_has_changed(module_of_server, nanoseconds):
    """Its file may then be older than the one that was imported."""

    def status():
        caller = fork_server.Process(target=fork_server.run_in_server)
        caller.start()
        caller.join(150)
        return caller.exitcode

    assert status() == 7
    os.utime(module_of_server, ns=(nanoseconds, nanoseconds))
    assert status() == 0  # it returns, and would run by itself


def test_an_error_is_one_sentence_and_status_two(address, tmp_path):
    served, alone = (
        command("run", "missing.json", address=own_address, cwd=tmp_path)
        for own_address in (address, "")
    )
    assert served.wait() == alone.wait() == 2
    sentence = served.stderr.read()
    assert sentence == alone.stderr.read()
    assert sentence.startswith("vitrail: missing.json is no node")


def test_a_command_has_the_folder_and_the_standard_output_of_its_caller(address, tmp_path, root):
    registry = root / "configs" / "datasets.yaml"
    options = ("--data", "data", "--receipt", "receipt.json", "--registry", registry)
    done = command("fetch", "digits", *options, address=address, cwd=tmp_path)
    assert done.wait() == 0
    assert "1198 training" in done.stdout.read()
    assert (tmp_path / "receipt.json").is_file()


def test_a_caller_that_is_killed_takes_its_command_along(address, tmp_path, registry):
    training, _ = nodes(tmp_path, registry)
    caller = command("run", training, address=address)
    holder = tmp_path / "tiny" / "seed0" / ".lock-holder"
    until(lambda: holder.is_file() and holder.read_text())
    caller.kill()
    until(lambda: not is_locked(holder.with_name(".lock")))
    assert holder.is_file()  # which a training that ends by itself deletes


def is_locked(path):
    try:
        with lock(path):
            return False
    except Locked:
        return True


@pytest.mark.parametrize(
    "environment", [{"OMP_NUM_THREADS": "2"}, {"RANK": "0"}, {fork_server.ADDRESS: "/gone"}]
)
def test_a_command_that_no_server_can_run_runs_by_itself(address, monkeypatch, environment):
    """With more threads, as a process of torchrun, or after the server's death."""
    for name, value in {**ONE_THREAD, fork_server.ADDRESS: address, **environment}.items():
        monkeypatch.setenv(name, value)
    assert fork_server.run_in_server() is None  # it would exit
