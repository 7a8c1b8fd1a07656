"""mmseg's own tools and API with our configurations, on rectangular photos as ADE20K has them."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import vitrail.segmentation  # noqa: F401  # isort: skip
import pytest
import torch
from mmengine.runner import CheckpointLoader
from mmseg.apis import MMSegInferencer, inference_model, init_model
from PIL import Image
from safetensors.torch import load_file

from replication.config.python_source import config_files
from replication.config.recipes.segmentation import SegmentationRecipe
from replication.datasets.miniature import write_miniature
from replication.training.dispatch import TrainingRun
from replication.training.segmentation import training as engine
from tests.vitrail.segmentation.segmenters import CONFIGS
from vitrail.errors import VitrailError
from vitrail.segmentation.tools import run_tool

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # mmseg's own, of many kinds
STEPS = 5
TINY = {"img_size": 64, "patch_size": 2, "window_size": 4, "embed_dim": 12, "depths": [1] * 4}
MODEL = {
    "data_preprocessor": {"size": [64, 64]},
    "backbone": {**TINY, "num_heads": [1, 2, 2, 4]},
    "decode_head": {"in_channels": [12, 24, 48, 96], "channels": 8},
    "auxiliary_head": {"in_channels": 48, "channels": 8},
}
MICRO = f"""
_base_ = "readme.py"
model = {MODEL}
model["data_preprocessor"]["size"] = crop_size = (64, 64)
train_pipeline = _base_.train_pipeline
train_pipeline[2]["scale"] = (256, 64)
train_pipeline[3]["crop_size"] = crop_size
test_pipeline = _base_.test_pipeline
test_pipeline[1]["scale"] = (256, 64)
alone = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(dataset=dict(data_root=ROOT, pipeline=train_pipeline), **alone)
val_dataloader = dict(dataset=dict(data_root=ROOT, pipeline=test_pipeline), **alone)
test_dataloader = val_dataloader
train_cfg = dict(max_iters={STEPS}, val_interval={STEPS})
tta_pipeline = _base_.tta_pipeline
tta_pipeline[1]["transforms"][0] = [dict(type="Resize", scale_factor=0.3, keep_ratio=True)]
"""
SLIDE = ["model.test_cfg.mode=slide", "model.test_cfg.crop_size=(64,64)"]


@pytest.fixture(scope="module")
def data_root(info, tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    write_miniature(info, root, per_class=1, classes=2)
    return root


@pytest.fixture(scope="module")
def photo(data_root):
    file = next(data_root.rglob("images/validation/*.jpg"))
    width, height = Image.open(file).size
    assert width != height
    return file


@pytest.fixture(scope="module")
def trained(root, data_root, tmp_path_factory):
    """The library page's configuration, made small, trained and then validated by mmseg's train."""
    folder = tmp_path_factory.mktemp("trained")
    (snippet,) = re.findall(
        r"```python\n(_base_.*?)```", (root / "docs" / "library.md").read_text(), re.S
    )
    (folder / "readme.py").write_text(snippet)
    (place,) = data_root.rglob("ADEChallengeData2016")
    (folder / "micro.py").write_text(MICRO.replace("ROOT", repr(str(place))))
    run_tool(
        "train", [str(folder / "micro.py"), "--work-dir", str(folder / "work"), *once("train")]
    )
    return folder


def once(name, *options):
    """Else tools that begin in one second of one process share the Runner's global objects."""
    return ["--cfg-options", f"experiment_name={name}", "log_level=ERROR", *options]


@pytest.mark.slow
def test_the_readmes_configuration_is_trained_and_validated_on_rectangular_images(trained):
    (told,) = (trained / "work").glob("*/vis_data/scalars.json")
    assert [*map(json.loads, told.read_text().splitlines())][-1].keys() >= {"mIoU", "mAcc", "aAcc"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--tta"], []], ids=["tta", "slide"])
def test_what_it_trained_is_tested(trained, options, capsys):
    slide = [] if options else [*SLIDE, "model.test_cfg.stride=(48,48)"]
    files = [str(trained / "micro.py"), str(trained / "work" / f"iter_{STEPS}.pth")]
    out = trained / ("slide" if slide else "tta")
    given = ["--work-dir", str(out), "--out", str(out / "labels"), *options]
    run_tool("test", [*files, *given, *once(out.name, *slide)])
    labels = {Image.open(file).size for file in (out / "labels").glob("*.png")}
    assert labels == {(172, 128)}


@pytest.mark.slow
def test_what_it_trained_is_published_without_its_optimizer(trained, tmp_path):
    saved = trained / "work" / f"iter_{STEPS}.pth"
    run_tool("misc/publish_model", [str(saved), str(tmp_path / "mine.pth")])
    deadline = time.monotonic() + 60
    while not (found := [*tmp_path.glob("mine-????????.pth")]):  # a process of its own renames it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    before, after = (CheckpointLoader.load_checkpoint(str(file)) for file in (saved, *found))
    assert after.keys() == before.keys() - {"optimizer"}
    torch.testing.assert_close(after["state_dict"], before["state_dict"], rtol=0, atol=0)


@pytest.fixture(scope="module")
def run(info, data_root, tmp_path_factory):
    """A run of ours: an adaptive segmenter after one step."""
    sizes = {"type": "Resize", "scale": [256, 64], "keep_ratio": True}
    pipeline = [{"type": "LoadImageFromFile"}, sizes, {"type": "LoadAnnotations"}]
    loader = {"dataset": {"pipeline": [*pipeline, {"type": "PackSegInputs"}]}}
    crop = {"type": "RandomCrop", "crop_size": [64, 64]}
    name = "a_swinv2_t_upernet_ade20k"
    recipe = {
        "model": {"name": name, "args": MODEL, "files": config_files(name, CONFIGS.parents[1])},
        "data": {"dataset": "ade20k"},
        "options": {
            "train_dataloader": {
                "dataset": {"pipeline": [*pipeline, crop, {"type": "PackSegInputs"}]}
            },
            "test_dataloader": loader,
        },
        "schedule": {"steps": 1},
        "batch": {"size": 2},
    }
    folder = tmp_path_factory.mktemp("run")
    engine.train(TrainingRun(SegmentationRecipe.model_validate(recipe), 0, folder, info, data_root))
    return folder


@pytest.mark.slow
def test_mmseg_opens_a_run_and_segments_a_photo(run, photo):
    model = init_model(str(run / "config.py"), str(run / "mmseg.pth"), device="cpu")
    assert len(model.dataset_meta["classes"]) == len(model.dataset_meta["palette"]) == 150
    weights = load_file(run / "weights.safetensors")
    torch.testing.assert_close(dict(model.state_dict()), weights, rtol=0, atol=0)
    labels = inference_model(model, str(photo)).pred_sem_seg.data
    width, height = Image.open(photo).size
    assert labels.shape == (1, height, width)
    inferencer = MMSegInferencer(str(run / "config.py"), str(run / "mmseg.pth"), device="cpu")
    assert (inferencer(str(photo))["predictions"] == labels[0].numpy()).all()


@pytest.mark.slow
def test_no_import_of_ours_is_needed_to_open_a_run(run):
    code = """
import sys
import vitrail  # for torchvision alone, whose compiled part may not be torch's
from mmengine.runner import CheckpointLoader
from mmseg.apis import init_model
init_model(*sys.argv[1:], device="cpu")
"""
    files = [str(run / "config.py"), str(run / "mmseg.pth")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_photos_are_segmented_from_the_command_line(run, photo, tmp_path):
    files = [str(run / "config.py"), str(run / "mmseg.pth"), str(photo)]
    run_tool("infer", [*files, "--out", str(tmp_path), "--device", "cpu"])
    for kind in ("vis", "pred"):
        (picture,) = (tmp_path / kind).iterdir()
        assert picture.name == f"{photo.stem}.png"
        assert Image.open(picture).size == Image.open(photo).size


@pytest.fixture
def infer(run, tmp_path, monkeypatch):
    """Segment images in a folder of the test's own; returns what is then below `--out`."""
    monkeypatch.chdir(tmp_path)

    def infer(*images, out="predictions"):
        files = [str(run / "config.py"), str(run / "mmseg.pth"), *map(str, images)]
        run_tool("infer", [*files, "--out", out, "--device", "cpu"])
        return saved(Path(out))

    return infer


def saved(out):
    return sorted(str(file.relative_to(out)) for file in out.rglob("*.png"))


def test_images_of_one_name_in_two_folders_are_saved_apart(infer, photo):
    for folder in ("x", "y", "x/.hidden", "x/__MACOSX"):
        Path(folder).mkdir()
        Image.open(photo).save(f"{folder}/img.png")
    both = ["pred/x/img.png", "pred/y/img.png", "vis/x/img.png", "vis/y/img.png"]
    assert infer("x/img.png", "y/img.png") == both
    assert infer("x", "y", out="folders") == both
    assert infer("x", out="one") == ["pred/img.png", "vis/img.png"]


def test_no_result_is_written_over_another(infer, photo):
    Image.open(photo).save("img.png")
    Image.open(photo).rotate(180).save("img.jpg")
    with pytest.raises(VitrailError, match=r"img\.png and img\.jpg would both"):
        infer("img.png", "img.jpg")
    infer("img.png")
    before = Path("predictions/pred/img.png").read_bytes()
    with pytest.raises(VitrailError, match=r"pred/img\.png is there already"):
        infer("img.jpg")
    assert Path("predictions/pred/img.png").read_bytes() == before


def test_damaged_images_are_named_and_the_others_segmented(infer, photo):
    for name in ("a.png", "z.png"):
        Image.open(photo).save(name)
    Path("broken.jpg").write_bytes(b"none")
    Path("empty.jpg").touch()
    Image.new("RGB", (1, 1)).save("dot.png")
    with pytest.raises(VitrailError, match=r"3 of 5 images.*broken\.jpg.*empty\.jpg.*dot\.png"):
        infer("a.png", "broken.jpg", "empty.jpg", "dot.png", "z.png")
    expected = ["pred/a.png", "pred/z.png", "vis/a.png", "vis/z.png"]
    assert saved(Path("predictions")) == expected


@pytest.mark.parametrize("size", [(1, 40), (2, 2)])
def test_the_smallest_images_are_segmented(infer, size):
    Image.new("RGB", size).save("dot.png")
    assert infer("dot.png") == ["pred/dot.png", "vis/dot.png"]
    assert Image.open("predictions/pred/dot.png").size == size


def test_a_folder_without_images_is_refused(infer):
    Path("nothing").mkdir()
    with pytest.raises(VitrailError, match="nothing holds no images"):
        infer("nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["train_dataloader.batch_size=1"], "train_dataloader.batch_size to 2"),
        (
            ["model.decode_head.num_classes=1", "model.auxiliary_head.num_classes=1"],
            "num_classes of the model's heads",
        ),
        pytest.param(
            ["optim_wrapper.type=AmpOptimWrapper"],
            "optim_wrapper.type to OptimWrapper",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has it"),
        ),
    ],
    ids=["one image a batch", "one class", "mixed precision"],
)
def test_usual_mistakes_in_a_configuration_are_told_with_their_remedy(
    trained, tmp_path, options, said
):
    given = [str(trained / "micro.py"), "--work-dir", str(tmp_path)]
    with pytest.raises(VitrailError, match=said):
        run_tool("train", [*given, *once(tmp_path.name, *options)])


@pytest.mark.slow
def test_a_test_without_masks_is_told_with_its_remedy(trained, tmp_path):
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "PackSegInputs"}]
    bare = tmp_path / "bare.py"
    bare.write_text(
        f"_base_ = {str(trained / 'micro.py')!r}\n"
        f"test_dataloader = dict(dataset=dict(pipeline={pipeline}))\n"
    )
    files = [str(bare), str(trained / "work" / f"iter_{STEPS}.pth")]
    with pytest.raises(VitrailError, match="vitrail mmseg infer"):
        run_tool("test", [*files, "--work-dir", str(tmp_path), *once(tmp_path.name)])


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(VitrailError, match="mmseg: tool 'trian' is unknown; did you mean 'train'"):
        run_tool("trian", [])
    with pytest.raises(VitrailError, match=r"mmseg's train misses a file .*none\.py"):
        run_tool("train", [str(tmp_path / "none.py")])
