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
from timm.models import load_state_dict

from tests.malice import ATTACKS
from vitrail.errors import VitrailError
from vitrail.files import sha256
from vitrail.weights_file import find_weights, read_checkpoint, read_weights, require_as_noted

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


def in_a_command(code, *arguments, **environment):
    """Run code in a new process, once ``vitrail --version`` has begun there."""
    begin = """
import os, sys
from vitrail.__main__ import run
sys.argv, given = ["vitrail", "--version"], sys.argv
try:
    run()
except SystemExit:
    sys.argv = given
"""
    return python(begin + code, *arguments, **environment)


def python(code, *arguments, **environment):
    """Run code in a new process whose environment says nothing else of torch's loading."""
    clean = {name: value for name, value in os.environ.items() if "WEIGHTS_ONLY" not in name}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=clean | environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}])
def test_in_a_command_even_a_caller_that_asks_to_run_code_is_refused(tmp_path, asked):
    files = [tmp_path / f"{number}.pth" for number in range(len(ATTACKS))]
    for attack, file in zip(ATTACKS, files, strict=True):
        attack(file, tmp_path / "made")
    code = """
import torch
from pathlib import Path
for file in map(Path, sys.argv[1:]):
    hub = {"model_dir": file.parent / "hub", "weights_only": False, "progress": False}
    for load, source, options in (
        (torch.load, file, {"weights_only": False}),
        (torch.hub.load_state_dict_from_url, file.as_uri(), hub),
    ):
        try:
            load(source, **options)
        except Exception as error:
            print(str(error).splitlines()[0])
"""
    done = in_a_command(code, *files, **asked)
    assert done.stdout.count("Weights only load failed") == 2 * len(files), done.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_an_import_of_the_library_leaves_torch_load_to_its_user(tmp_path):
    torch.save({"epoch": 3, "args": argparse.Namespace(lr=0.1)}, tmp_path / "mine.pth")
    code = """
import sys, torch
import vitrail.models, vitrail.octic.group_averaging, vitrail.weights_file
import vitrail.variance.resolution_accuracy
print(torch.load(sys.argv[1], weights_only=False)["args"].lr)
"""
    done = python(code, tmp_path / "mine.pth")
    assert done.stdout == "0.1\n", done.stderr


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
        with pytest.raises(VitrailError, match=rf"{name} is .*(damaged|refused)") as error:
            read_checkpoint(file)
        assert "\n" not in str(error.value)


def test_missing_files_and_folders_are_told(tmp_path):
    for path in (tmp_path, tmp_path / "none.pth"):
        with pytest.raises(VitrailError, match=f"cannot read {path} "):
            read_checkpoint(path)


@pytest.mark.parametrize(
    "content",
    [
        WEIGHTS,
        {"state_dict": WEIGHTS, "epoch": 3},
        {"model": WEIGHTS, "lr": [1.0]},
        {"model_state_dict": WEIGHTS},
    ],
)
def test_weights_are_found_in_a_checkpoint(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    read = read_weights(tmp_path / "w.pth")
    assert read.keys() == WEIGHTS.keys()
    assert all(torch.equal(read[name], value) for name, value in WEIGHTS.items())


@pytest.mark.parametrize("name", ["state_dict_ema", "model_ema"])
@pytest.mark.parametrize("raw", ["state_dict", "model"])
def test_the_moving_average_is_loaded_as_timm_loads_it(tmp_path, name, raw):
    average = {key: 2 * value for key, value in WEIGHTS.items()}
    torch.save({"arch": "any", raw: WEIGHTS, name: average}, tmp_path / "last.pth.tar")
    found, kept_as = find_weights(tmp_path / "last.pth.tar")
    timms = load_state_dict(str(tmp_path / "last.pth.tar"))
    assert kept_as == name
    assert found.keys() == timms.keys()
    assert all(torch.equal(found[key], timms[key]) for key in timms)


def test_a_checkpoint_that_holds_itself_is_refused(tmp_path):
    content = {"epoch": 3}
    content["model"] = content
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(VitrailError, match="holds no weights"):
        read_weights(tmp_path / "w.pth")


def test_a_checkpoint_without_weights_names_what_it_holds(tmp_path):
    torch.save({"net": {"a": 1}, "epoch": 3}, tmp_path / "w.pth")
    with pytest.raises(VitrailError, match=r"net, epoch.* torch\.save\(model\.state_dict\(\)"):
        read_weights(tmp_path / "w.pth")


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


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_of_these_tests_work_where_nothing_stops_them(tmp_path, attack):
    attack(tmp_path / "evil.pth", tmp_path / "made")
    code = "import sys, torch; torch.load(sys.argv[1], weights_only=False)"
    python(code, tmp_path / "evil.pth")
    assert (tmp_path / "made").exists()
