"""mIoU, mAcc and aAcc are those of the definition, and calibration changes the test alone."""

from types import SimpleNamespace

import vitrail.segmentation  # noqa: F401  # isort: skip
import numpy as np
import pytest
import torch
from torch.nn import functional

from replication.context import Described, Trained
from replication.training.segmentation import accuracy, config
from replication.training.segmentation.accuracy import (
    Areas,
    calibrated_accuracy,
    segmentation_accuracy,
)
from vitrail.errors import VitrailError

IGNORED = 255
SMALL = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": [128, 32], "keep_ratio": True},
    {"type": "LoadAnnotations", "reduce_zero_label": True},
    {"type": "PackSegInputs"},
]


def by_the_definition(pairs, classes):
    """100 times mIoU, mAcc and aAcc of all pixels that count, one class at a time."""
    counted = [(guess[mask != IGNORED], mask[mask != IGNORED]) for guess, mask in pairs]
    guess, label = (torch.cat(side).numpy() for side in zip(*counted, strict=True))
    ious, accuracies = [], []
    for index in range(classes):
        guessed, labelled = guess == index, label == index
        if (guessed | labelled).any():
            ious.append((guessed & labelled).sum() / (guessed | labelled).sum())
        if labelled.any():
            accuracies.append(guessed[labelled].mean())
    values = {"mIoU": np.mean(ious), "mAcc": np.mean(accuracies), "aAcc": (guess == label).mean()}
    return {name: 100 * value for name, value in values.items()}


def test_metrics_are_those_of_the_definition_over_the_whole_set():
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for size in ((6, 7), (5, 9), (8, 8)):
        prediction = torch.randint(0, 5, size, generator=generator)  # class 5 never occurs
        mask = torch.randint(0, 4, size, generator=generator)  # class 4 is only ever predicted
        mask[torch.rand(size, generator=generator) < 0.2] = IGNORED
        pairs.append((prediction, mask))
    areas = Areas(classes=6)
    for pair in pairs:
        areas.add(*pair)
    assert areas.values() == pytest.approx(by_the_definition(pairs, classes=6), rel=1e-6)


def test_what_is_ignored_is_not_judged():
    mask = torch.tensor([[0, 1], [IGNORED, IGNORED]])
    areas = Areas(classes=2)
    areas.add(torch.tensor([[0, 1], [1, 0]]), mask)
    assert areas.values() == {"mIoU": 100, "mAcc": 100, "aAcc": 100}


@pytest.fixture(scope="module")
def trained(make_recipe, info, data_root):
    recipe = make_recipe({"options": {"test_dataloader": {"dataset": {"pipeline": SMALL}}}})
    torch.manual_seed(0)
    model = config.build_model(recipe, info.classes).eval()
    return Trained("cpu", data_root, 0, recipe=recipe, info=info, model=model)


@pytest.mark.slow
def test_predictions_are_judged_at_the_original_size(trained):
    opened = accuracy.ValidationSamples(trained)
    samples = [opened[index] for index in range(len(opened))]
    pairs = [(accuracy.predict(trained, sample), sample.mask) for sample in samples]
    assert all(prediction.shape == mask.shape for prediction, mask in pairs)
    assert any(sample.image.shape[1:] != sample.mask.shape for sample in samples)
    values = segmentation_accuracy(trained)
    assert values.pop("images") == len(pairs)
    assert values == pytest.approx(by_the_definition(pairs, trained.info.classes), rel=1e-5)


RESIZED = [*SMALL[:2], {"type": "ResizeToMultiple", "size_divisor": 24}, *SMALL[2:]]
PADDED = {"data_preprocessor": {"test_cfg": {"size_divisor": 24}}}


@pytest.fixture
def first_sample(make_recipe, info, data_root):
    """The first image under a test pipeline, whose multiples `fit` brings it to."""

    def read(pipeline, args, fit=None):
        test = {"test_dataloader": {"dataset": {"pipeline": pipeline}}}
        recipe = make_recipe({"options": test, "model": {"args": args}})
        described = Described("cpu", data_root, 0, recipe=recipe, info=info)
        return accuracy.ValidationSamples(described, fit)[0]

    return read


@pytest.mark.slow
@pytest.mark.parametrize("own", [(RESIZED, {}), (SMALL, PADDED)])
def test_images_come_to_the_same_multiples_by_padding_or_by_resizing(first_sample, own):
    plain = first_sample(SMALL, {}).image
    assert plain.shape[1:] == (32, 43)
    padded = first_sample(*own, fit="pad").image
    assert torch.equal(padded, functional.pad(plain, (0, 5, 0, 16)))
    resized = first_sample(*own, fit="resize").image
    assert resized.shape == padded.shape == (3, 48, 48)
    assert torch.equal(resized, first_sample(RESIZED, {}).image)
    assert resized[:, 32:].any()


@pytest.mark.slow
def test_what_is_padded_is_not_judged(first_sample, trained, monkeypatch):
    """Of a segmenter that sees classes by colour."""
    monkeypatch.setattr(trained.model, "encode_decode", lambda images, told: images)
    plain = accuracy.predict(trained, first_sample(SMALL, {}))
    assert len(plain.unique()) > 1
    assert torch.equal(accuracy.predict(trained, first_sample(SMALL, PADDED)), plain)


@pytest.mark.slow
@pytest.mark.parametrize("fit", ["pad", "resize"])
def test_without_multiples_images_stay_as_they_are(first_sample, fit):
    assert torch.equal(first_sample(SMALL, {}, fit).image, first_sample(SMALL, {}).image)


def test_another_way_to_fit_is_refused(trained):
    with pytest.raises(VitrailError, match="fit 'crop' is unknown"):
        segmentation_accuracy(trained, fit="crop")


def test_a_backbone_without_positions_cannot_be_calibrated(trained):
    with pytest.raises(VitrailError, match="SwinTransformer, which adds no table of positions"):
        calibrated_accuracy(trained)


def test_calibration_is_switched_on_the_same_weights(trained, info, data_root, monkeypatch):
    backbone = accuracy.TimmViT(
        "vit_tiny_patch16_224", img_size=32, embed_dim=8, depth=1, num_heads=1, out_indices=[0]
    )
    seen = []

    def predict(trained, sample):
        seen.append(
            backbone.model.rescaling.get("calibration", backbone.model.rescaling.get("scale"))
        )
        wrong = {None: 0.5, "constant": 0.25, "empirical": 0.0, 0.0: 1.0}[seen[-1]]
        prediction = sample.mask.clone()
        prediction[: round(wrong * len(prediction))] = IGNORED - 1
        return prediction

    monkeypatch.setattr(accuracy, "predict", predict)
    monkeypatch.setattr(
        accuracy,
        "ValidationSamples",
        lambda *_: [SimpleNamespace(mask=torch.arange(4)[:, None].expand(4, 3))] * 2,
    )
    vit = SimpleNamespace(backbone=backbone)
    values = calibrated_accuracy(
        Trained("cpu", data_root, 0, recipe=trained.recipe, info=info, model=vit)
    )
    assert seen == [None, "constant", "empirical", 0.0] * 2
    ways = ("baseline", "iid", "empirical", "zero")
    assert [values[f"aAcc/{way}"] for way in ways] == [50, 75, 100, 0]
    assert values["aAcc/iid-baseline"] == 25
    assert values["mAcc/empirical-baseline"] == 50
