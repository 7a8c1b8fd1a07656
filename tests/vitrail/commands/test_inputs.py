"""What a command about one model is given may come from anybody: it is read without running it."""

import json

import pytest
import timm
from PIL import Image
from safetensors.torch import save_file

from tests.malice import ATTACKS

MODEL = "test_vit"
COMMANDS = {"audit": ["audit"], "pshap": ["pshap", "--model"]}


@pytest.fixture
def refusal(vitrail, tmp_path):
    """Run a command on a model, which is refused in a sentence; return it."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "0.png")

    def run(command, model, *options):
        done = vitrail(*COMMANDS[command], model, "--data", "photos", *options)
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        return done.err

    return run


@pytest.fixture
def folder(tmp_path):
    """The folder of a model, to be filled."""
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("command", COMMANDS)
def test_weights_that_would_run_code_are_refused(refusal, folder, tmp_path, command, attack):
    (folder / "config.json").write_text(json.dumps({"architecture": MODEL}))
    weights = folder / "pytorch_model.bin"
    attack(weights, tmp_path / "made")
    assert "cannot be made with these weights (" in refusal(command, f"local-dir:{folder}")
    assert f"{weights} is refused, as " in refusal(command, MODEL, "--checkpoint", weights)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "{}", "\xff", "[" * 100_000),
        *(json.dumps({"architecture": name}) for name in ("no_model", 3, None, [], "", "../x")),
        *(json.dumps({"architecture": MODEL, "num_classes": n}) for n in ("many", 2.5, [])),
        *(json.dumps({"architecture": MODEL, "pretrained_cfg": given}) for given in (3, [1])),
        *(json.dumps({"architecture": MODEL, "model_args": given}) for given in (3, {"x": 1})),
    ],
)
def test_a_damaged_configuration_of_a_model_is_one_sentence(refusal, folder, text):
    (folder / "config.json").write_text(text, encoding="latin1")
    assert "cannot be made with" in refusal("pshap", f"local-dir:{folder}", "--no-pretrained")


@pytest.mark.parametrize(
    "view",
    [
        {"input_size": [3, -1, -1]},
        *({name: "x"} for name in ("mean", "crop_pct", "interpolation")),
        *({"crop_pct": -1}, {"std": [0, 0, 0]}),
    ],
)
def test_a_configuration_that_cannot_prepare_an_image_is_one_sentence(refusal, folder, view):
    config = {"architecture": MODEL, "pretrained_cfg": view}
    (folder / "config.json").write_text(json.dumps(config))
    said = refusal("pshap", f"local-dir:{folder}", "--no-pretrained")
    assert "cannot be shown an image (" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_weights_of_another_size_of_images_are_refused(refusal, tmp_path, command):
    """timm would resize their positions, and say nothing of it."""
    weights = tmp_path / "weights.safetensors"
    save_file(timm.create_model(MODEL, img_size=64).state_dict(), weights)
    said = refusal(command, MODEL, "--checkpoint", weights)
    assert "images of another size" in said
    assert "local-dir:" in said
