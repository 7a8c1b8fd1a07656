import functools

import numpy as np
import pytest
import torch

import vitrail.segmentation  # noqa: F401  # isort: skip
import mmcv
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.hub import get_config
from mmengine.registry import DefaultScope
from mmseg.models.segmentors import EncoderDecoder
from mmseg.registry import DATASETS, MODELS
from mmseg.structures import SegDataSample

from tests.vitrail.segmentation.segmenters import CONFIGS, config

pytestmark = pytest.mark.filterwarnings("ignore:`reduce_zero_label`")  # mmseg's own
NAMES = sorted(file.stem for file in CONFIGS.glob("*.py"))
THEIRS = "swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py"
HEADS_AND_BACKBONE = {"backbone", "decode_head", "auxiliary_head"}


def resolved(name):
    return without_scopes(config(name).to_dict())


@functools.cache
def mmsegs(name=THEIRS):
    return without_scopes(get_config(f"mmseg::{name}").to_dict())


def without_scopes(node):
    """Leave out where a value was inherited from, which mmengine notes in `_scope_`."""
    if isinstance(node, dict):
        return {key: without_scopes(value) for key, value in node.items() if key != "_scope_"}
    return [without_scopes(value) for value in node] if isinstance(node, list) else node


def difference(one, other):
    return {key for key in {*one, *other} if one.get(key) != other.get(key)}


def test_there_is_a_configuration_for_every_row():
    assert NAMES == [
        "a_swin_t_upernet_ade20k",
        "a_swin_t_upernet_ade20k_circular",
        "a_swinv2_t_upernet_ade20k",
        "a_swinv2_t_upernet_ade20k_circular",
        "deit_s_upernet_ade20k",
        "deit_s_upernet_cityscapes",
        "deit_s_upernet_loveda",
        "swin_t_upernet_ade20k_circular",
        "swinv2_t_upernet_ade20k",
        "swinv2_t_upernet_ade20k_circular",
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if f"a_{name}" in NAMES])
def test_an_adaptive_model_differs_from_its_plain_one_by_backbone_and_heads_only(name):
    plain, adaptive = resolved(name), resolved(f"a_{name}")
    assert difference(plain, adaptive) == {"model"}
    assert difference(plain["model"], adaptive["model"]) == HEADS_AND_BACKBONE
    for head in ("decode_head", "auxiliary_head"):
        assert difference(plain["model"][head], adaptive["model"][head]) == {"type"}


def test_under_standard_shifts_a_swin_differs_from_mmsegs_swin_by_crops_and_padding_too():
    plain, adaptive = mmsegs(), resolved("a_swin_t_upernet_ade20k")
    preprocessor = {"data_preprocessor"}
    assert difference(plain["model"], adaptive["model"]) == HEADS_AND_BACKBONE | preprocessor
    changed = difference(*(c["model"]["data_preprocessor"] for c in (plain, adaptive)))
    assert changed == {"size", "test_cfg"}
    same = ("optim_wrapper", "param_scheduler", "train_cfg", "val_evaluator", "default_hooks")
    assert [adaptive[key] for key in same] == [plain[key] for key in same]
    crop = {"type": "RandomCrop", "crop_size": (448, 448), "cat_max_ratio": 0.75}
    expected = [
        crop if transform["type"] == "RandomCrop" else transform
        for transform in plain["train_pipeline"]
    ]
    assert adaptive["train_dataloader"]["dataset"]["pipeline"] == expected
    assert adaptive["test_dataloader"] == plain["test_dataloader"]


@pytest.mark.parametrize("name", NAMES)
def test_augmentation_at_test_time_fits_the_windows_as_the_test_does(name):
    settings = config(name)
    pipeline = settings.test_dataloader.dataset.pipeline
    fits = [
        transform.size_divisor for transform in pipeline if transform.type == "ResizeToMultiple"
    ]
    augmented = settings.tta_pipeline[1].transforms
    assert [
        transform.size_divisor
        for step in augmented
        for transform in step
        if transform.type == "ResizeToMultiple"
    ] == fits
    # mmseg's --tta takes the preprocessor beside the model.
    beside, own = settings.get("data_preprocessor", {}), settings.model.data_preprocessor
    assert beside.get("test_cfg") == own.get("test_cfg")


@pytest.mark.parametrize("name", NAMES)
def test_training_is_mmsegs_on_four_gpus_of_four_images(name):
    """Sec. A3.2 and, for the variance paper, "Semantic Segmentation"."""
    settings, theirs = resolved(name), mmsegs()
    assert settings["train_cfg"]["max_iters"] == 160_000
    assert settings["train_dataloader"]["batch_size"] == 4
    assert settings["param_scheduler"] == theirs["param_scheduler"]
    optimizer = settings["optim_wrapper"]["optimizer"]
    assert optimizer == theirs["optim_wrapper"]["optimizer"]
    assert (optimizer["type"], optimizer["lr"], optimizer["weight_decay"]) == ("AdamW", 6e-5, 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_crops_are_padded_to_the_size_that_the_backbone_is_built_for(name):
    settings = config(name)
    size = settings.model.data_preprocessor.size
    assert size[0] == size[1] == settings.model.backbone.get("img_size", 448)


@pytest.fixture(scope="module")
def photo(tmp_path_factory):
    """A photo of 300 x 500 pixels with its mask, as a sample of a dataset."""
    folder = tmp_path_factory.mktemp("photo")
    generator = np.random.default_rng(0)
    mmcv.imwrite(generator.integers(0, 255, (300, 500, 3), np.uint8), str(folder / "image.jpg"))
    mmcv.imwrite(generator.integers(0, 5, (300, 500), np.uint8), str(folder / "mask.png"))
    return {
        "img_path": str(folder / "image.jpg"),
        "seg_map_path": str(folder / "mask.png"),
        "label_map": None,
        "reduce_zero_label": True,
        "seg_fields": [],
    }


def run(pipeline, photo):
    with DefaultScope.overwrite_default_scope("mmseg"):
        return Compose(pipeline)(dict(photo, seg_fields=[]))


def preprocess(settings, item, training):
    with DefaultScope.overwrite_default_scope("mmseg"):
        preprocessor = MODELS.build(settings.model.data_preprocessor)
    batch = {"inputs": [item["inputs"]], "data_samples": [item["data_samples"]]}
    return preprocessor(batch, training=training)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("a_swin_t_upernet_ade20k_circular", (448, 896)),  # 448 x 747, Table A6
        ("a_swinv2_t_upernet_ade20k_circular", (512, 1024)),  # 512 x 853, Table A7
        ("a_swin_t_upernet_ade20k", (672, 896)),  # 512 x 853, Table A8, padded
        ("a_swinv2_t_upernet_ade20k", (512, 1024)),  # likewise
    ],
)
def test_test_images_come_to_multiples_of_the_windows(name, size, photo):
    settings = config(name)
    item = run(settings.test_dataloader.dataset.pipeline, photo)
    assert item["data_samples"].gt_sem_seg.shape == (300, 500)  # judged at its own size
    assert preprocess(settings, item, training=False)["inputs"].shape[2:] == size


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("a_")])
def test_training_images_come_to_the_size_of_the_backbone(name, photo):
    settings = config(name)
    side = settings.model.backbone.img_size
    item = run(settings.train_dataloader.dataset.pipeline, photo)
    batch = preprocess(settings, item, training=True)
    assert batch["inputs"].shape == (1, 3, side, side)
    assert batch["data_samples"][0].gt_sem_seg.shape == (side, side)


def test_logits_of_a_padded_image_come_back_at_its_own_size(photo):
    """What padding adds is cut off again by mmseg."""
    settings = config("a_swinv2_t_upernet_ade20k")
    item = run(settings.test_dataloader.dataset.pipeline, photo)
    batch = preprocess(settings, item, training=False)

    class Identity:
        out_channels, align_corners = 3, False

        def __init__(self):
            self.decode_head = self

    sample = EncoderDecoder.postprocess_result(Identity(), batch["inputs"], batch["data_samples"])
    original = torch.nn.functional.interpolate(
        preprocess(config(NAMES[1]), item, training=False)["inputs"],
        (300, 500),
        mode="bilinear",
        align_corners=False,
    )
    assert isinstance(sample[0], SegDataSample)
    torch.testing.assert_close(sample[0].seg_logits.data, original[0])


@pytest.mark.parametrize("name", NAMES)
def test_datasets_have_the_classes_that_the_heads_predict(name):
    settings = config(name)
    kinds = {
        DATASETS.get(f"mmseg.{settings[loader].dataset.type}")
        for loader in ("train_dataloader", "val_dataloader", "test_dataloader")
    }
    (kind,) = kinds
    assert len(kind.METAINFO["classes"]) == settings.model.decode_head.num_classes
    assert settings.model.auxiliary_head.num_classes == settings.model.decode_head.num_classes


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("deit_s_upernet_cityscapes", "cityscapes_1024x1024"),
        ("deit_s_upernet_loveda", "loveda"),
    ],
)
def test_data_are_those_of_mmsegs_own_configuration(name, base):
    settings, theirs = resolved(name), mmsegs(f"_base_/datasets/{base}.py")
    for loader in ("train_dataloader", "val_dataloader", "test_dataloader"):
        assert settings[loader]["dataset"] == theirs[loader]["dataset"]


def test_the_text_of_a_configuration_is_mmsegs_and_can_be_written_and_read(tmp_path):
    settings = config("a_swin_t_upernet_ade20k_circular")
    settings.dump(tmp_path / "dumped.py")
    assert Config.fromfile(tmp_path / "dumped.py").to_dict() == settings.to_dict()
