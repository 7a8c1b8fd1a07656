"""What a command about one model is given may come from anybody: it is read without running it."""

import json

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import resolve_model_data_config
from timm.data.readers.reader_image_folder import ReaderImageFolder
from timm.models import save_for_hf

from tests.malice import ATTACKS
from vitrail.commands.inputs import ClassNames, Folder, class_names, create, find_images
from vitrail.errors import VitrailError
from vitrail.image_files import ORIENTATION

MODEL = "test_vit"
COMMANDS = ("audit", "pshap")


@pytest.fixture
def refusal(vitrail, tmp_path):
    """Run a command on a model, which is refused in a sentence; return it."""
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "0.png")

    def run(command, model, *options):
        done = vitrail(command, model, "--data", "photos", *options)
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
        *("", "{", "[]", "{}", "\xff", "[" * 100_000),
        *(json.dumps({"architecture": name}) for name in ("no_model", 3, "", "../x")),
        *(json.dumps({"architecture": MODEL, "num_classes": n}) for n in ("many", 2.5)),
        json.dumps({"architecture": MODEL, "pretrained_cfg": 3}),
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


def images_in(folder, *names):
    """Put an image of noise into each folder of these names."""
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(256, size=(8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    "names",
    [
        [str(number) for number in range(1, 13)],
        ["n2", "n10", "N1"],
        ["Zebra", "ant", "Bee"],
        ["birds/crow", "birds/owl", "cats/lion"],
        ["train/b", "val/b", "train/a", "val/a"],
    ],
)
def test_without_names_the_classes_are_in_timms_order(tmp_path, names):
    images_in(tmp_path, *names)
    theirs = ReaderImageFolder(str(tmp_path))
    ours = Folder(tmp_path, len(theirs.class_to_idx))
    assert not ours.unlabelled
    assert {str(path): label for path, label in ours.samples} == dict(theirs.samples)
    first = [f"{rank} {name}" for name, rank in theirs.class_to_idx.items()]
    assert next(ours.told()).endswith(": " + ", ".join(first))


def test_names_of_the_classes_decide_also_for_a_folder_of_some(tmp_path):
    known = ClassNames(["dog", "cat", "cow"], "the model's label_names")
    folder = Folder(images_in(tmp_path, "cat", "dog"), 3, known=known)
    assert [label for _, label in folder.samples] == [1, 0]
    assert next(folder.told()) == "Labels (the model's label_names): 0 dog, 1 cat"


@pytest.mark.parametrize("name", ["horse", "cow", ""])
def test_a_folder_that_names_no_class_or_two_labels_nothing(tmp_path, name):
    known = ClassNames(["dog", "cat", "cow", "cow"], "the file")
    folder = Folder(images_in(tmp_path, "cat", "dog", name), 4, known=known)
    assert name in folder.unlabelled
    assert {label for _, label in folder.samples} == {-1}


@pytest.mark.parametrize(("name", "said"), [("horse", "horse"), ("", "1.png")])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_class_map_that_labels_nothing_is_refused(refusal, tmp_path, command, name, said):
    (tmp_path / "photos" / "0.png").unlink()
    images_in(tmp_path / "photos", "cat", name)
    (tmp_path / "names.txt").write_text("cat\nhors\n")
    model = timm.create_model(MODEL, num_classes=2)
    save_file(model.state_dict(), tmp_path / "two.safetensors")
    options = ["--checkpoint", "two.safetensors", "--class-map", "names.txt"]
    told = refusal(command, MODEL, *options)
    assert f"photos/{said}" in told
    assert "names.txt" in told
    assert ("(nearest: 'hors')" in told) == bool(name)


def test_an_image_beside_the_folders_of_classes_is_named(tmp_path):
    images_in(tmp_path, "cat", "dog")
    images_in(tmp_path, "", "", "")
    folder = Folder(tmp_path, 2)
    assert str(tmp_path / "0.png") in folder.unlabelled
    assert "2 other images" in folder.unlabelled


def test_a_saved_model_keeps_the_view_of_its_training(tmp_path):
    model = timm.create_model(MODEL, num_classes=2)
    view = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop_pct": 0.8}
    model.pretrained_cfg.update(view)
    save_for_hf(model, tmp_path / "own", safe_serialization=True)
    config = resolve_model_data_config(create(f"local-dir:{tmp_path / 'own'}", True))
    assert {name: config[name] for name in view} == view


def test_a_model_says_how_its_classes_are_called(tmp_path):
    model = timm.create_model(MODEL, num_classes=2)
    assert class_names(model, None) is None
    names = {"label_names": ["dog", "cat"]}
    save_for_hf(model, tmp_path / "pets", model_config=names, safe_serialization=True)
    own = create(f"local-dir:{tmp_path / 'pets'}", True)
    assert class_names(own, None)[:2] == (["dog", "cat"], "the model's label_names")
    (tmp_path / "names.txt").write_text("cat\r\ndog\n")
    assert class_names(own, tmp_path / "names.txt").names == ["cat", "dog"]


@pytest.mark.parametrize("given", ["a\nb\nc", "a", "", None])
def test_a_class_map_of_another_number_of_classes_is_refused(tmp_path, given):
    file = tmp_path / "names.txt"
    if given is not None:
        file.write_text(given)
    model = timm.create_model(MODEL, num_classes=2)
    with pytest.raises(VitrailError, match=r"names\.txt"):
        class_names(model, file)


@pytest.mark.parametrize("names", [["a"], "ab", 3, {"a": 0, "b": 1}])
def test_label_names_that_do_not_fit_are_refused(names):
    model = timm.create_model(MODEL, num_classes=2)
    model.pretrained_cfg = {**model.pretrained_cfg, "label_names": names}
    with pytest.raises(VitrailError, match=r"label_names has .* 2 classes: .*--class-map FILE"):
        class_names(model, None)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_model_of_one_logit_is_refused(refusal, tmp_path, command):
    save_file(timm.create_model(MODEL, num_classes=1).state_dict(), tmp_path / "one.safetensors")
    said = refusal(command, MODEL, "--checkpoint", "one.safetensors")
    assert "one logit, which is always the largest" in said


def test_a_checkpoints_moving_average_is_loaded_and_told(tmp_path, capsys):
    raw, average = (timm.create_model(MODEL, num_classes=3) for _ in range(2))
    content = {"state_dict": raw.state_dict(), "state_dict_ema": average.state_dict()}
    torch.save(content, tmp_path / "last.pth.tar")
    model = create(MODEL, True, tmp_path / "last.pth.tar")
    assert torch.equal(model.head.weight, average.head.weight)
    assert "state_dict_ema of" in capsys.readouterr().out


def test_weights_under_other_names_are_told_by_some_of_them(refusal, tmp_path):
    weights = timm.create_model(MODEL, num_classes=3).state_dict()
    others = {f"encoder.{name.replace('head', 'top')}": weights[name] for name in weights}
    save_file(others, "others.safetensors")
    said = refusal("audit", MODEL, "--checkpoint", "others.safetensors")
    assert "encoder.blocks." in said
    assert "torch.save(model.state_dict(), FILE)" in said


@pytest.mark.parametrize("prefix", ["model.", "net.backbone."])
def test_a_prefix_of_all_names_is_left_out_and_told(tmp_path, capsys, prefix):
    """As Lightning names the weights of a module's model."""
    own = timm.create_model(MODEL, num_classes=3)
    content = {"state_dict": {f"{prefix}{name}": x for name, x in own.state_dict().items()}}
    torch.save(content | {"epoch": 1}, tmp_path / "lightning.ckpt")
    model = create(MODEL, True, tmp_path / "lightning.ckpt")
    assert torch.equal(model.head.weight, own.head.weight)
    assert f"'{prefix}'" in capsys.readouterr().out


def test_a_typo_of_a_models_name_is_told_a_name_with_the_same_beginning():
    with pytest.raises(VitrailError, match="did you mean 'vit_tiny_"):
        create("vit_tinyy", False)


def test_every_name_of_a_format_that_is_read_is_taken_and_others_are_counted(tmp_path):
    for name in ("a.gif", "b.jp2", "c.png", "d.JPG"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "d.JPG").rename(tmp_path / "d.jfif")
    for name in ("1.HEIC", "2.heic", "q.avif", "notes.txt"):
        (tmp_path / name).touch()
    found, unread = find_images(tmp_path)
    assert sorted(path.name for path in found) == ["a.gif", "b.jp2", "c.png", "d.jfif"]
    assert unread == {".heic": 2, ".avif": 1}
    assert any("3 files" in told and ".avif, .heic" in told for told in Folder(tmp_path, 2).told())
    for path in found:
        path.unlink()
    with pytest.raises(VitrailError, match=r"has no images but \.avif, \.heic"):
        find_images(tmp_path)


def test_images_that_viewers_turn_are_counted(tmp_path):
    for number, orientation in enumerate((1, 6, 8)):
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        Image.new("RGB", (8, 6)).save(tmp_path / f"{number}.jpg", exif=exif)
    assert any("orientation of 2 of 3 images" in told for told in Folder(tmp_path, 2).told())
    assert not any("orientation" in told for told in Folder(tmp_path, 2, images=1).told())
