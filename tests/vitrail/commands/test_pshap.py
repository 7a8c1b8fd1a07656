import json
import re

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data import ImageNetInfo, create_transform, resolve_model_data_config

import vitrail.models  # noqa: F401
from tests.vitrail.commands.conftest import in_classes
from vitrail.commands.inputs import Folder
from vitrail.commands.p_shap_interval import FEWEST
from vitrail.measures.outputs import UNKNOWN
from vitrail.measures.permutable import permutable
from vitrail.measures.position_shap.measure import position_shap

MODEL = "test_vit"


@pytest.fixture
def photos(tmp_path):
    """Six images of noise in a folder."""
    folder = tmp_path / "photos"
    folder.mkdir()
    noise(folder, range(6))
    return folder


def noise(folder, numbers):
    random = np.random.default_rng(0)
    for number in numbers:
        pixels = random.integers(256, size=(40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_it_prints_the_p_shap_that_a_sweep_measures(vitrail, photos):
    noise(photos, range(6, FEWEST))
    done = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained")
    assert done.code == 0
    torch.manual_seed(0)
    model = timm.create_model(MODEL).eval()
    transform = create_transform(**resolve_model_data_config(model))
    folder = [(transform(image), label) for image, label in Folder(photos, 1000)]
    result = position_shap(permutable(model), folder, batch_size=64)
    low, high = result.interval
    assert (
        f"P-SHAP of test_vit, random weights: {result.mean:.4f} "
        f"(95 % interval {low:.4f} to {high:.4f})" in done.out
    )
    assert f"Mean over {FEWEST} images, each explained by the class predicted" in done.out
    assert re.search(r"5 forward passes an image, \S+ images/s on cpu", done.out)


def test_a_few_images_have_no_interval(vitrail, photos):
    noise(photos, range(6, FEWEST - 1))
    done = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained", "--permutations", 1)
    assert done.code == 0
    assert f"({FEWEST - 1} images are too few for an interval" in done.out
    assert "95 %" not in done.out


def test_options_reach_the_sweep(vitrail, photos):
    options = ["--images", 2, "--permutations", 2, "--batch-size", 1, "--seed", 4]
    out = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained", *options).out
    assert "Mean over 2 images" in out
    assert "3 forward passes an image" in out
    again = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained", *options).out
    assert again.splitlines()[:2] == out.splitlines()[:2]


def test_it_stops_when_the_interval_is_narrow_enough(vitrail, photos):
    for copy in range(40):
        for image in range(6):
            (photos / f"{copy}-{image}.png").write_bytes((photos / f"{image}.png").read_bytes())
    options = ["--batch-size", 16, "--half-width", 0.9, "--permutations", 1]
    out = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained", *options).out
    assert "Stopped after 112 images of 246" in out


def test_folders_of_classes_are_labels_where_they_are_the_models(photos):
    in_classes(photos, "a", "a", "b", "b", "c", "c")
    folder = Folder(photos, classes=3)
    assert not folder.unlabelled
    assert [label for _, label in folder] == [0, 0, 1, 1, 2, 2]
    other = Folder(photos, classes=4)
    assert other.unlabelled
    assert {label for _, label in other} == {UNKNOWN}
    assert [path.name for path, _ in Folder(photos, 3, images=3).samples] == [
        "0.png",
        "2.png",
        "4.png",
    ]


def test_folders_of_synsets_are_imagenets_classes(photos):
    synsets = ImageNetInfo().label_names()
    in_classes(photos, *[synsets[7]] * 3, *[synsets[500]] * 3)
    folder = Folder(photos, classes=1000)
    assert not folder.unlabelled
    assert [label for _, label in folder] == [7] * 3 + [500] * 3


def test_a_model_that_is_always_wrong_has_no_p_shap(vitrail, photos):
    in_classes(photos, *[ImageNetInfo().label_names()[-1]] * 6)
    done = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained")
    assert done.code == 2
    assert "test_vit classifies none of the 6 images" in done.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["test_vti"], "there is no model 'test_vti'; did you mean 'test_vit'?"),
        (["eva02_tiny_patch14_224"], "the model has no classes to predict"),
        ([MODEL, "--device", "xla"], "torch cannot use device 'xla' here: use 'cpu'"),
        (["test_vti", "--permutations", "3"], "permutations is 3; give 1 or an even number"),
        ([MODEL, "--device", "gpu"], "torch cannot use device 'gpu' here: use 'cpu'"),
    ],
)
def test_a_mistake_is_one_sentence(vitrail, photos, options, sentence):
    done = vitrail("pshap", *options, "--data", photos, "--no-pretrained")
    assert done.code == 2
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1


def test_a_saved_model_instead_of_a_name_is_answered_with_how_to_give_it(vitrail, photos, tmp_path):
    saved, weights = tmp_path / "saved", tmp_path / "mine.pth"
    saved.mkdir()
    (saved / "config.json").write_text("{}")
    weights.write_bytes(b"")
    for given, remedy in ((saved, f"local-dir:{saved}"), (weights, f"--checkpoint {weights}")):
        done = vitrail("pshap", str(given), "--data", photos)
        assert (done.code, len(done.err.splitlines())) == (2, 1)
        assert remedy in done.err


def test_weights_that_cannot_be_fetched_are_told(vitrail, photos, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("no network.")

    monkeypatch.setattr(timm, "create_model", refuse)
    done = vitrail("pshap", MODEL, "--data", photos)
    assert done.code == 2
    assert "(no network)" in done.err
    assert "--no-pretrained" in done.err
    assert "name" not in done.err.partition("(no network)")[2]  # timm knows the name


def test_what_has_nothing_to_do_with_weights_is_not_advised_to_do_without(vitrail, photos):
    done = vitrail("pshap", "test_vit.nonsense", "--data", photos, "--no-pretrained")
    assert done.code == 2
    assert "(Invalid pretrained tag (nonsense) for test_vit): correct the model's name" in done.err
    assert "--no-pretrained" not in done.err


def test_a_checkpoint_of_ones_own_has_its_own_classes(vitrail, photos, tmp_path):
    in_classes(photos, "a", "a", "b", "b", "c", "c")
    torch.manual_seed(1)
    own = timm.create_model(MODEL, num_classes=3).eval()
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in own.state_dict().items()}}, tmp_path / "a.pth"
    )
    options = ["--data", photos, "--permutations", 2]
    done = vitrail("pshap", MODEL, *options, "--checkpoint", tmp_path / "a.pth")
    folder = Folder(photos, 3)
    transform = create_transform(**resolve_model_data_config(own))
    labelled = [(transform(image), label) for image, label in folder]
    result = position_shap(permutable(own), labelled, permutations=2)
    assert f"P-SHAP of test_vit: {result.mean:.4f} " in done.out
    other = timm.create_model("test_vit2", num_classes=3).state_dict()
    headless = {name: weight for name, weight in own.state_dict().items() if "head" not in name}
    for weights, said in (
        (other, "correct --checkpoint or the model's name"),
        (headless, "no classifier 'head.weight'"),
    ):
        save_file(weights, tmp_path / "b.safetensors")
        wrong = vitrail("pshap", MODEL, *options, "--checkpoint", tmp_path / "b.safetensors")
        assert wrong.code == 2
        assert said in wrong.err
        assert len(wrong.err.splitlines()) == 1


def test_a_model_of_a_folder_is_timms(vitrail, photos, tmp_path):
    torch.manual_seed(1)
    own = timm.create_model(MODEL, num_classes=3)
    config = {"architecture": MODEL, "num_classes": 3, "pretrained_cfg": own.pretrained_cfg}
    options = ["--data", photos, "--permutations", 2, f"local-dir:{tmp_path}"]
    done = vitrail("pshap", *options)
    assert done.code == 2
    assert "Config file not found" in done.err
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(own.state_dict(), tmp_path / "model.safetensors")
    assert f"P-SHAP of local-dir:{tmp_path}: 0." in vitrail("pshap", *options).out
    done = vitrail("pshap", *options, "--checkpoint", tmp_path / "model.safetensors")
    assert "--checkpoint is for a model of timm's own names" in done.err


def test_a_sweep_of_other_images_or_labels_is_not_resumed(photos):
    in_classes(photos, "a", "a", "b", "b", "c", "c")
    digests = [Folder(photos, classes).digest() for classes in (3, 4, 3)]
    assert digests[0] == digests[2] != digests[1]  # unlabelled
    middle = photos / "b" / "2.png"
    content = middle.read_bytes()
    middle.write_bytes(content + b"\0")
    longer = Folder(photos, 3).digest()
    middle.write_bytes(content)
    middle.rename(photos / "c" / "2.png")
    assert len({*digests, longer, Folder(photos, 3).digest()}) == 4


@pytest.mark.slow
def test_a_negative_seed_is_refused(vitrail, photos):
    done = vitrail("pshap", MODEL, "--data", photos, "--no-pretrained", "--seed", -1)
    assert done.code == 2
    assert "Invalid value for '--seed'" in done.err


def test_images_are_looked_for_before_weights_are_fetched(vitrail, tmp_path, monkeypatch):
    monkeypatch.setattr(timm, "create_model", lambda *args, **options: pytest.fail("fetched"))
    for folder, said in ((tmp_path / "none", "there is no folder"), (tmp_path, "has no images")):
        done = vitrail("pshap", MODEL, "--data", folder)
        assert done.code == 2
        assert said in done.err


def test_a_model_without_positions_is_refused_before_images_are_read(vitrail, photos):
    for photo in photos.iterdir():
        photo.write_bytes(b"nothing")
    done = vitrail("pshap", "test_resnet", "--data", photos, "--no-pretrained")
    assert done.code == 2
    assert "positions of ResNet cannot be permuted" in done.err


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named_and_left_out_as_if_it_were_not_there(vitrail, photos, workers):
    options = [MODEL, "--data", photos, "--no-pretrained", "--permutations", 1]
    damaged = photos / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    done = vitrail("pshap", *options, "--workers", workers)
    assert done.code == 0
    first, named, *told = done.out.splitlines()
    assert first == "1 of 6 images cannot be read and are left out:"
    assert named.startswith(f"  cannot read image {damaged} (")
    damaged.unlink()
    without = vitrail("pshap", *options).out.splitlines()
    assert told[1:3] == without[1:3]  # P-SHAP, and the images that it is a mean over


def test_help_has_an_example(vitrail):
    out = vitrail("pshap", "--help").out
    assert "vitrail pshap vit_tiny_patch16_224 --data" in out
    assert "\b" not in out
