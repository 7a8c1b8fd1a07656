"""The exported measures give what the measures give, and a mistake in their input is one error."""

import inspect
import warnings

import pytest
import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vitrail import (
    VitrailError,
    accuracy_under_turns,
    circular_consistency,
    equivariance_error,
    permutable,
    position_shap,
)
from vitrail.measures import consistency, equivariance
from vitrail.measures.position_shap import measure
from vitrail.octic import turns
from vitrail.shift.conversion import random_shifts

CLASSES = 3
IMAGES = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % CLASSES
DATA = TensorDataset(IMAGES, LABELS)


class Wrapped(nn.Module):
    """A model whose logits a function changes."""

    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, images):
        return self.change(self.model(images))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 12, "depth": 1, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", num_classes=CLASSES, **small).eval()


@pytest.mark.parametrize(
    ("checked", "measured", "data"),
    [
        (circular_consistency, consistency.circular_consistency, IMAGES),
        (circular_consistency, consistency.circular_consistency, [(IMAGES, LABELS)]),
        (circular_consistency, consistency.circular_consistency, [(IMAGES, -1 - 0 * LABELS)]),
        (circular_consistency, consistency.circular_consistency, [(IMAGES, LABELS.byte())]),
        (accuracy_under_turns, turns.accuracy_under_turns, DataLoader(DATA, batch_size=4)),
        (accuracy_under_turns, turns.accuracy_under_turns, [(IMAGES, LABELS.int())]),
        (position_shap, measure.position_shap, DATA),
        (position_shap, measure.position_shap, DataLoader(DATA, batch_size=4)),
        (position_shap, measure.position_shap, IMAGES),
    ],
)
@pytest.mark.filterwarnings("ignore:P-SHAP is a mean over")
@pytest.mark.filterwarnings("ignore:the model classifies none")
def test_the_result_is_that_of_the_measure(checked, measured, data, model):
    assert inspect.signature(checked) == inspect.signature(measured)
    found, expected = checked(model, data, seed=3), measured(model, data, seed=3)
    for name in ("correct", "debiased", "right", "right_rotated", "equal"):
        if hasattr(expected, name):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name
    if measured is consistency.circular_consistency:
        assert str(found) == str(expected)  # top-1 may be NaN


@pytest.mark.filterwarnings("ignore:the model classifies none")
def test_a_loader_is_read_as_often_as_by_the_measure(model):
    """A loader that shuffles and drops the rest takes other images each time it is read."""

    def of(run):
        torch.manual_seed(0)
        return run(model, DataLoader(DATA, batch_size=4, shuffle=True, drop_last=True)).debiased

    assert torch.equal(of(position_shap), of(measure.position_shap))


def test_a_model_that_takes_these_images_is_measured_whatever_their_precision(model):
    """Such as one that converts images itself, or runs under autocast; or an exported program."""

    class Converting(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model
            self.eval()

        def forward(self, images):
            return self.model(images.float() / 255)

    pixels = (255 * IMAGES).byte()
    run = circular_consistency
    assert run(Converting(), pixels) == consistency.circular_consistency(Converting(), pixels)
    with torch.autocast("cpu", torch.bfloat16):
        assert run(model, IMAGES.bfloat16()).images == len(IMAGES)
    batch = torch.export.Dim("batch", max=4096)
    exported = torch.export.export(model, (IMAGES,), dynamic_shapes=({0: batch},)).module()
    assert run(exported, IMAGES) == consistency.circular_consistency(exported, IMAGES)
    assert accuracy_under_turns(exported, [(IMAGES, LABELS)]).right.shape == (6, 2)


def test_memory_that_does_not_suffice_is_told_as_torch_tells_it(model):
    def full(logits):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        circular_consistency(Wrapped(model, full).eval(), IMAGES)


BATCHES = [
    ("no batch", []),
    ("no image", [(IMAGES[:0], LABELS[:0])]),
    ("not square", [(IMAGES[..., :16], LABELS)]),
    ("bytes", [((255 * IMAGES).byte(), LABELS)]),
    ("double", [(IMAGES.double(), LABELS)]),
    ("fewer labels", [(IMAGES, LABELS[:2])]),
    ("another class in the second batch", [(IMAGES, LABELS), (IMAGES, LABELS + 1)]),
    ("below -1", [(IMAGES, LABELS - 2)]),
    ("fractions", [(IMAGES, LABELS + 0.5)]),
    ("single images", DATA),
]


@pytest.mark.parametrize("run", [circular_consistency, accuracy_under_turns])
@pytest.mark.parametrize(("what", "batches"), BATCHES)
def test_wrong_batches_are_refused(what, batches, run, model):
    with pytest.raises(VitrailError):
        run(model, batches)


def test_accuracy_needs_labels(model):
    for batches in (IMAGES, [(IMAGES, torch.full((6,), -1))]):
        with pytest.raises(VitrailError):
            accuracy_under_turns(model, batches)


def test_a_pair_of_shifts_is_the_least(model):
    with pytest.raises(VitrailError, match="pairs is 0"):
        circular_consistency(model, IMAGES, pairs=0)


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("no labels", TensorDataset(IMAGES)),
        ("a list of images", list(IMAGES)),
        ("other samples", [{"image": image} for image in IMAGES]),
        ("names of classes", [(image, "cat") for image in IMAGES]),
        ("fractions", TensorDataset(IMAGES, LABELS + 0.5)),
        ("one-hot labels", TensorDataset(IMAGES, torch.eye(CLASSES)[LABELS])),
        ("another class", TensorDataset(IMAGES, LABELS + 1)),
        ("batches", [(IMAGES, LABELS)] * 3),
        ("dictionaries", DataLoader([{"image": IMAGES[0], "label": 0}] * 3)),
        ("one image without a batch", IMAGES[0]),
        ("one image", IMAGES[:1]),
        ("no image", IMAGES[:0]),
        ("bytes", (255 * IMAGES).byte()),
        ("an array", IMAGES.numpy()),
    ],
)
@pytest.mark.parametrize("estimator", ["sweep", "half-batches"])
def test_wrong_samples_are_refused(what, data, estimator, model):
    with pytest.raises(VitrailError):
        position_shap(model, data, estimator=estimator)


@pytest.mark.parametrize(
    ("label", "named"),
    [
        (torch.eye(CLASSES)[1], rf"float32.*\({CLASSES},\)"),
        (torch.tensor(1.0), "float32"),
        ("cat", "cat"),
    ],
)
def test_a_wrong_label_is_named(label, named, model):
    with pytest.raises(VitrailError, match=f"label.*{named}"):
        position_shap(model, [(image, label) for image in IMAGES])


def test_an_image_that_cannot_be_read_is_told(model):
    class Broken(list):
        def __getitem__(self, number):
            raise OSError("corrupt file 7.png")

    with pytest.raises(VitrailError, match=r"corrupt file 7\.png"):
        position_shap(model, Broken([(image, 0) for image in IMAGES]))


@pytest.mark.parametrize(
    ("run", "data"),
    [
        (circular_consistency, IMAGES),
        (accuracy_under_turns, [(IMAGES, LABELS)]),
        (position_shap, DATA),
    ],
)
def test_a_model_that_has_no_logits_to_measure_is_refused(run, data, model):
    training = timm.create_model("test_vit", img_size=32, num_classes=CLASSES)
    others = [
        "vit_tiny_patch16_224",
        training,
        Wrapped(model, lambda logits: (logits, logits)).eval(),
        Wrapped(model, lambda logits: {"logits": logits}).eval(),
        Wrapped(model, lambda logits: logits[:, :1]).eval(),
        Wrapped(model, lambda logits: logits[0]).eval(),
    ]
    for other in others:
        with pytest.raises(VitrailError):
            run(other, data)


def test_p_shap_warns_where_its_mean_or_interval_means_nothing(model):
    predicted = model(IMAGES).argmax(1)
    with pytest.warns(UserWarning, match="none of the images"):
        none = position_shap(model, TensorDataset(IMAGES, (predicted + 1) % CLASSES))
    assert none.mean != none.mean  # NaN
    with pytest.warns(UserWarning, match="mean over 6 images"):
        position_shap(model, TensorDataset(IMAGES, predicted))
    many = IMAGES.repeat(4, 1, 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        position_shap(model, TensorDataset(many, predicted.repeat(4)))
        position_shap(model, TensorDataset(IMAGES, predicted), estimator="half-batches")


class OwnTable(nn.Module):
    """A classifier with a table of positions, which `read` adds to its tokens."""

    def __init__(self, read, rows=16):
        super().__init__()
        torch.manual_seed(0)
        self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, CLASSES)
        self.pos, self.read = nn.Parameter(torch.randn(1, rows, 8)), read
        self.eval()

    def forward(self, images):
        tokens = self.patches(images).flatten(2).mT
        return self.head((tokens + self.read(self.pos)).square().mean(dim=1))


def test_a_table_may_be_added_as_it_is():
    """Its P-SHAP is the same for every size of a batch."""
    model = permutable(OwnTable(lambda table: table), table="pos")
    one, all_ = (position_shap(model, IMAGES, batch_size=size).mean for size in (1, 6))
    assert one == pytest.approx(all_, rel=1e-4)
    assert one > 0


@pytest.mark.parametrize("estimator", ["sweep", "half-batches"])
@pytest.mark.parametrize(
    "read", [lambda table: table[0], lambda table: table[:1], lambda table: table.view(1, 16, 8)]
)
def test_a_table_of_which_a_batch_reads_one_images_rows_is_refused(read, estimator):
    model = permutable(OwnTable(read), table="pos")
    with pytest.raises(VitrailError, match=r"\(B, N, C\)"):
        position_shap(model, IMAGES, estimator=estimator)


def test_a_table_of_one_row_is_refused():
    model = permutable(OwnTable(lambda table: table, rows=1), table="pos")
    with pytest.raises(VitrailError, match="1 position"):
        position_shap(model, IMAGES)


def test_a_star_import_has_the_public_names():
    names = {}
    exec("from vitrail import *", names)
    assert names["position_shap"] is position_shap


def test_an_equivariance_error_is_that_of_the_measure_and_mistakes_are_told():
    conv = nn.Conv2d(3, 4, 1)
    group = random_shifts(IMAGES, shifts=2, seed=0)
    assert equivariance_error(conv, IMAGES, group) == equivariance.equivariance_error(
        conv, IMAGES, group
    )
    wrong = [(IMAGES[:2], group), ([IMAGES], group), (IMAGES, (1, 2)), (IMAGES.byte(), group)]
    for images, elements in wrong:
        with pytest.raises(VitrailError, match=r": give "):
            equivariance_error(conv, images, elements)
