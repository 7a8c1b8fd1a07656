"""Weights are read without running code, and published ones are those that were fetched."""

import argparse
import json
import os
import subprocess
import sys

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.malice import ATTACKS
from vitrail.errors import VitrailError
from vitrail.files import sha256
from vitrail.weights_file import read_checkpoint, read_weights, require_as_noted

WEIGHTS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(1)}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("read", [read_checkpoint, read_weights])
def test_a_file_that_would_run_code_is_refused_in_a_sentence(tmp_path, attack, read):
    attack(tmp_path / "evil.pth", tmp_path / "made")
    with pytest.raises(
        VitrailError, match=r"evil\.pth is refused, as .* from their publisher"
    ) as e:
        read(tmp_path / "evil.pth")
    assert "\n" not in str(e.value)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_even_a_caller_that_asks_to_run_code_is_refused(tmp_path, attack):
    attack(tmp_path / "evil.pth", tmp_path / "made")
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(tmp_path / "evil.pth", weights_only=False)
    url = (tmp_path / "evil.pth").as_uri()
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.hub.load_state_dict_from_url(url, model_dir=tmp_path / "hub", weights_only=False)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("attack", ATTACKS)
def test_timm_refuses_it_too(tmp_path, attack):
    attack(tmp_path / "evil.pth", tmp_path / "made")
    for source in ({"file": str(tmp_path / "evil.pth")}, {"url": (tmp_path / "evil.pth").as_uri()}):
        overlay = {"hf_hub_id": None, **source}
        with pytest.raises(Exception, match=r"(?i)weights.only"):
            timm.create_model("test_vit", pretrained=True, pretrained_cfg_overlay=overlay)
    assert not (tmp_path / "made").exists()


def test_options_of_a_training_are_no_code(tmp_path):
    checkpoint = {"model": WEIGHTS, "args": argparse.Namespace(lr=0.1), "epoch": 3}
    torch.save(checkpoint, tmp_path / "deit.pth")
    weights = read_weights(tmp_path / "deit.pth")
    assert weights.keys() == WEIGHTS.keys()
    assert torch.equal(weights["a"], WEIGHTS["a"])


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><title>Sign in", b"\n <html><body>", b"<?xml "])
@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_web_page_in_the_place_of_weights_is_called_one(tmp_path, page, name):
    (tmp_path / name).write_bytes(page)
    with pytest.raises(VitrailError, match=rf"{name} is a web page, not weights: delete it"):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_damaged_files_are_one_sentence(tmp_path, name):
    file = tmp_path / name
    torch.save(WEIGHTS, file) if name == "w.pth" else save_file(WEIGHTS, file)
    whole = file.read_bytes()
    for size in (0, 1, 10, 70, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(VitrailError, match=rf"{name} is (damaged|refused)") as error:
            read_checkpoint(file)
        assert "\n" not in str(error.value)


def test_missing_files_and_folders_are_told(tmp_path):
    for path in (tmp_path, tmp_path / "none.pth"):
        with pytest.raises(VitrailError, match=f"cannot read {path} "):
            read_checkpoint(path)


@pytest.mark.parametrize(
    "content", [WEIGHTS, {"state_dict": WEIGHTS, "epoch": 3}, {"model": WEIGHTS, "lr": [1.0]}]
)
def test_weights_are_found_in_a_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    read = read_weights(tmp_path / "w.pth")
    assert read.keys() == WEIGHTS.keys()
    assert all(torch.equal(read[name], value) for name, value in WEIGHTS.items())


@pytest.mark.parametrize("content", [{}, [1, 2], {"state_dict": {"a": 1}}, 3])
def test_a_checkpoint_without_weights_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(VitrailError, match=r"w\.pth holds no weights"):
        read_weights(tmp_path / "w.pth")


@pytest.fixture
def noted(tmp_path):
    """Published weights and their note."""
    file = tmp_path / "swin.ms_in1k.safetensors"
    save_file(WEIGHTS, file)
    note = {"sha256": sha256(file), "published_sha256": "0" * 64, "pinned": False}
    (tmp_path / "swin.ms_in1k.json").write_text(json.dumps(note))
    return file


def test_weights_that_have_changed_since_they_were_fetched_are_refused(noted):
    assert require_as_noted(noted)["pinned"] is False
    save_file({"a": torch.zeros(1)}, noted)
    with pytest.raises(VitrailError, match=r"has changed since it was fetched .*: delete it and"):
        require_as_noted(noted)


@pytest.mark.parametrize("note", [None, "", "{", "[]", '"text"', '{"sha256": "0"}', "\xff"])
def test_weights_without_a_sound_note_must_be_checked_first(noted, note):
    path = noted.with_suffix(".json")
    path.unlink() if note is None else path.write_text(note, encoding="latin1")
    said = r"no sound note .*: run `vitrail fetch-weights swin\.ms_in1k --output"
    with pytest.raises(VitrailError, match=said):
        require_as_noted(noted)


def test_every_training_process_forbids_code_in_weights():
    code = "import os, replication.engine.loop; print(os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_of_these_tests_work_where_nothing_stops_them(tmp_path, attack):
    attack(tmp_path / "evil.pth", tmp_path / "made")
    code = "import sys, torch; torch.load(sys.argv[1], weights_only=False)"
    environment = {**os.environ, "TORCH_FORCE_WEIGHTS_ONLY_LOAD": "0"}
    command = [sys.executable, "-c", code, str(tmp_path / "evil.pth")]
    subprocess.run(command, capture_output=True, env=environment)
    assert (tmp_path / "made").exists()
