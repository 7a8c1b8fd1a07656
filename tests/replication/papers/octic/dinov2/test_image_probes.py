"""Probes against numbers worked out by hand, and on a trained model that turns cannot change."""

import copy
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch.utils.data import Subset
from torchvision.transforms.functional import to_tensor

from replication.context import Trained
from replication.images.opening import SPLITS
from replication.measures.packed_scores import BY_IMAGE, unpack
from replication.papers.octic.dinov2 import feature_classifiers as neighbours
from replication.papers.octic.dinov2 import image_probes as probes
from replication.papers.octic.dinov2.feature_classifiers import (
    UNLABELLED,
    knn_accuracy,
    logistic_regression,
    nearest,
    vote,
    weighed,
)
from replication.papers.octic.dinov2.load_teacher import load_teacher
from replication.papers.octic.dinov2.network import build_model
from replication.papers.octic.dinov2.training import train
from replication.training.dispatch import TrainingRun
from replication.training.weights import load_weights
from vitrail.errors import VitrailError


@pytest.fixture(scope="module", autouse=True)
def _fewer_images():
    """Every fifth digit is enough."""
    build = probes.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "build", lambda *given: every_fifth(build(*given)))
        yield


def every_fifth(images):
    return Subset(images, range(0, len(images), 5))


NAMES = {
    "i8": {},
    "vit": {"name": "masked_vit_large_patch16_224"},
}


@pytest.fixture(scope="module")
def trained_as(make_recipe, info, tmp_path_factory):
    """Train one of `NAMES` for a few steps."""

    def trained_as(name):
        delta = {"model": NAMES[name], "schedule": {"steps": 3}}
        recipe = make_recipe(delta)
        if name == "vit":
            args = {k: v for k, v in recipe.model.args.items() if not k.endswith("_std")}
            model = recipe.model.model_copy(update={"args": args})
            recipe = recipe.model_copy(update={"model": model})
        folder = tmp_path_factory.mktemp(name)
        weights = train(TrainingRun(recipe, 0, folder, info, folder))
        model = build_model(recipe, 10).eval()
        load_weights(model, weights, recipe)
        return Trained("cpu", folder, 0, recipe=recipe, info=info, model=model, folder=folder)

    return trained_as


@pytest.fixture(scope="module")
def i8(trained_as):
    return trained_as("i8")


@pytest.mark.parametrize(("name", "kept"), [("i8", True), ("vit", False)])
def test_after_training_neighbours_tell_the_same_of_a_turned_image(trained_as, i8, name, kept):
    values = probes.knn(i8 if name == "i8" else trained_as(name), neighbours=[20])
    assert (values["equal"] == 100) == kept
    assert (values["worst"] == values["top1/20"]) == kept
    assert values["top1/20"] > 12
    assert values["images"] == 120


def test_votes_weigh_the_softmax_of_the_cosine():
    cosines = torch.tensor([[0.8, 0.6, 0.0]])
    votes = weighed(cosines, torch.tensor([[0, 1, 1]]), 2, [1, 3])
    weights = np.exp(np.array([0.8, 0.6, 0.0]) / 0.07)
    weights /= weights.sum()
    assert votes[3][0].tolist() == pytest.approx([weights[0], weights[1] + weights[2]], rel=1e-5)
    assert votes[1][0].tolist() == pytest.approx([weights[0], 0], rel=1e-5)
    bank, labels = 3 * torch.eye(3), torch.tensor([0, 1, 1])
    found = vote(bank, labels, torch.tensor([[8.0, 6.0, 0.0], [0.0, 0.1, 0.2]]), 2, [1, 3])
    assert {k: each.tolist() for k, each in found.items()} == {1: [0, 1], 3: [0, 1]}


@pytest.mark.parametrize("metric", ["cosine", "L2"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_nearest_are_found_whatever_the_chunks(metric, dtype, monkeypatch):
    random = torch.Generator().manual_seed(0)
    bank = torch.randn(50, 6, generator=random).to(dtype)
    queries = torch.randn(7, 6, generator=random).to(dtype)
    usable = torch.rand(50, generator=random) < 0.5
    points, asked = bank.double(), queries.double()
    if metric == "cosine":
        points, asked = (each / each.norm(dim=1, keepdim=True) for each in (points, asked))
    distances = torch.cdist(asked, points)
    for allowed in (None, usable):
        far = distances if allowed is None else distances.masked_fill(~allowed, torch.inf)
        wanted = far.argsort(1)[:, :20]
        for chunk, part in ((100, 100), (8, 3)):
            monkeypatch.setattr(neighbours, "CHUNK", chunk)
            monkeypatch.setattr(neighbours, "QUERIES", part)
            similar, rows = neighbours.closest(bank, queries, 20, metric, usable=allowed)
            assert torch.equal(rows, wanted)
            assert (similar.diff() <= 0).all()
    assert neighbours.closest(bank, queries, 99, metric, usable=usable)[1].shape[1] == usable.sum()


def test_progress_begins_with_the_untrained_teacher_and_ends_with_the_weights(i8):
    values = probes.progress(i8)
    whole = probes.knn(i8, neighbours=[20])
    assert values["steps"] == [0, 3]
    assert values["share/0"] == whole["untrained"]
    assert values["share/100"] == whole["top1/20"]
    assert whole["rise"] == values["share/100"] - values["share/0"]
    by_image = {key: unpack(whole[key + BY_IMAGE])[0] for key in ("top1/20", "rise")}
    assert by_image["rise"].size == whole["images"]
    assert {key: 100 * scores.mean() for key, scores in by_image.items()} == pytest.approx(
        {key: whole[key] for key in by_image}
    )
    assert set(by_image["rise"] - by_image["top1/20"]) == {-1, 0}  # minus which were right before


@pytest.mark.slow
def test_52_classifiers_are_trained_at_once(i8, monkeypatch):
    seen = []
    logits = probes._logits

    def counted(classifiers, tokens):
        seen.append({name: layer.in_features for name, layer in classifiers.items()})
        return logits(classifiers, tokens)

    monkeypatch.setattr(probes, "_logits", counted)
    before = {name: value.clone() for name, value in i8.model.state_dict().items()}
    values = probes.linear(i8, steps=30, batch_size=128)
    assert len(seen[0]) == 52
    # One block or, of the two that there are, both; with or without the mean patch.
    assert sorted(set(seen[0].values())) == [32, 64, 96]
    assert 11 < values["top1"] <= 100
    assert 0 < values["held_out"] <= values["top1"]
    assert probes.linear(i8, steps=30, batch_size=128) == values
    assert all(torch.equal(before[name], value) for name, value in i8.model.state_dict().items())


@pytest.mark.parametrize(
    ("measure", "given"),
    [
        (probes.knn, {"neighbours": [20]}),
        (probes.knn, {"turned": 7}),
        (probes.knn, {"accuracy_alone": True}),
        (probes.progress, {}),
        (probes.cells, {}),
        (probes.linear, {"steps": 2, "batch_size": 16}),
    ],
)
def test_as_many_images_pass_as_the_rule_says(i8, monkeypatch, measure, given):
    passed, kind = [], type(i8.model.patch_embed)
    forward = kind.forward

    def counted(self, images, *rest, **options):
        passed.append(len(images))
        return forward(self, images, *rest, **options)

    monkeypatch.setattr(kind, "forward", counted)
    measure(i8, **given)
    defaults = {
        parameter.name: parameter.default for parameter in signature(measure).parameters.values()
    }
    images = {split: len(probes.build(i8.info, split, i8.data_root)) for split in SPLITS}
    known = {"images": images["val"], "train_images": images["train"], "recipe": i8.recipe}
    wanted = measure.passes({**defaults, **given, **known}) * images["val"]
    assert sum(passed) == pytest.approx(wanted)


@pytest.mark.parametrize("measure", [probes.knn, probes.cells, probes.linear])
def test_features_that_are_not_finite_are_not_judged(i8, measure):
    diverged = copy.deepcopy(i8.model)
    for parameter in diverged.parameters():
        torch.nn.init.constant_(parameter, float("nan"))
    with pytest.raises(VitrailError, match="features are not finite"):
        measure(replace(i8, model=diverged))


@pytest.mark.slow
def test_in_half_precision_accuracies_hardly_change(i8):
    whole = probes.knn(i8, neighbours=[20])
    values = probes.knn(i8, neighbours=[20], precision="bf16", turned=40)
    assert values["equal"] == 100
    assert values["top1/20"] == pytest.approx(whole["top1/20"], abs=4)
    bank, _ = probes.class_tokens(i8, "val", 64, "bf16")
    assert bank.dtype == torch.bfloat16


def test_the_classifier_is_chosen_on_training_images_and_judged_on_all_others(i8, monkeypatch):
    """Of three classifiers the last is best on held-out images, and the first on the test's."""
    train, val = (len(probes.build(i8.info, split, i8.data_root, 0)) for split in SPLITS)
    fitted, judged = {}, {}

    def fit(self, part, images):
        fitted[part] = images
        return part

    def right(self, part, images):
        judged[part] = images
        best = torch.zeros(3, len(images), dtype=torch.float64)
        shares = {"fitted": (0.5, 0.2, 0.8), "all": (0.75, 0.0, 0.7)}[part]
        for classifier, share in enumerate(shares):
            best[classifier, : round(share * len(images))] = 1
        return best

    monkeypatch.setattr(probes._LinearProbe, "fit", fit)
    monkeypatch.setattr(probes._LinearProbe, "right", right)
    values = probes.linear(i8)
    assert values == {"top1": 75, "held_out": pytest.approx(70), "images": val}
    held_out = judged["fitted"].indices
    assert len(held_out) == train // 5
    assert sorted(held_out + fitted["fitted"].indices) == list(range(train))
    assert judged["fitted"].dataset is fitted["fitted"].dataset is fitted["all"]
    assert len(judged["all"]) == val


def test_classes_in_turn_are_all_held_out(i8, monkeypatch):
    """Datasets may lie in the order of their classes, or go through these in turn."""
    seen = []
    monkeypatch.setattr(probes._LinearProbe, "fit", lambda self, part, images: part)
    monkeypatch.setattr(
        probes._LinearProbe,
        "right",
        lambda self, part, images: seen.append(images) or torch.ones(1, len(images)),
    )
    probes.linear(i8)
    held_out, count = seen[0].indices, len(seen[0].dataset)
    assert {index % 8 for index in held_out} == set(range(8))
    assert {8 * index // count for index in held_out} == set(range(8))


def test_cells_are_judged_by_neighbours_and_logistic_regression(i8):
    """octic, App. E.3."""
    values = probes.cells(i8)
    metrics = ("wF1", "Acc", "bAcc")
    assert values.keys() == {"turned"} | {
        f"{name}/{metric}" for name in ("1-NN", "20-NN", "linear") for metric in metrics
    }
    assert values["turned"] == 0
    assert all(5 < value <= 100 for name, value in values.items() if name != "turned")


def test_cells_neighbours_are_scikit_learns(i8):
    bank, labels = probes.class_tokens(i8, "train", 128)
    queries, truth = probes.class_tokens(i8, "val", 128)
    theirs = KNeighborsClassifier(20).fit(bank, labels).predict(queries)
    assert np.array_equal(nearest(bank, labels, 10, 20)(queries), theirs)
    assert probes.cells(i8)["20-NN/Acc"] == probes.percent(torch.from_numpy(theirs) == truth)


@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_logistic_regression_is_scikit_learns(strength, monkeypatch):
    monkeypatch.setattr(neighbours, "CHUNK", 25)
    random = np.random.RandomState(0)
    x, y = random.randn(60, 4), random.randint(3, size=60)
    theirs = LogisticRegression(C=strength, tol=1e-8, max_iter=10000).fit(x, y)
    # Rows without a label have no influence.
    rows, labels = np.concatenate([x, 9 + x]), np.concatenate([y, np.full(60, UNLABELLED)])
    ours = logistic_regression(torch.from_numpy(rows), torch.from_numpy(labels), 3, strength)
    ours = ours(torch.from_numpy(x)).softmax(1).numpy()
    assert ours == pytest.approx(theirs.predict_proba(x), abs=1e-3)


@pytest.fixture
def colours(tmp_path):
    """Folders of red and of blue images, for training and validation."""
    for split in ("train", "val"):
        for name, colour in (("blue", (0, 0, 200)), ("red", (200, 0, 0))):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(3):
                file = tmp_path / split / name / f"{number}.png"
                Image.new("RGB", (20, 16), colour).save(file)
    return tmp_path


def test_a_run_is_opened_to_classify_a_folder_by_neighbours(i8, colours):
    teacher, view = load_teacher(i8.folder)
    image = view(Image.open(colours / "val" / "red" / "0.png"))
    assert torch.equal(teacher(image[None]), i8.model(image[None]))
    assert knn_accuracy(teacher, view, colours / "train", colours / "val", neighbours=3) == 100


def test_hidden_folders_are_no_class_of_neighbours(colours):
    (colours / "train" / ".ipynb_checkpoints").mkdir()
    (colours / "val" / "red" / "._0.png").touch()  # as macOS leaves beside 0.png
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 20, 2))
    torch.nn.init.ones_(model[1].weight)
    assert 0 <= knn_accuracy(model, to_tensor, colours / "train", colours / "val") <= 100


def test_neighbours_are_found_in_evaluation_mode_which_leaves_the_model_as_it_was(colours):
    """Batch norm would learn of the images, and dropout would change their features."""
    norm, dropout = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), norm, dropout)
    dropout.eval()  # its own mode, which another of the model does not change
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = []
    dropout.register_forward_hook(lambda *_: modes.append((norm.training, dropout.training)))
    given = (model, to_tensor, colours / "train", colours / "val")
    assert knn_accuracy(*given, neighbours=3) == 100
    assert {*modes} == {(False, False)}
    assert (model.training, norm.training, dropout.training) == (True, True, False)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_features_that_have_no_neighbours_are_refused_in_a_sentence(colours):
    class Constant(torch.nn.Linear):
        def forward(self, images):
            return images.mean((2, 3)) * self.weight[0, 0]

    folders = (colours / "train", colours / "val")
    model = Constant(1, 1)
    torch.nn.init.constant_(model.weight, float("nan"))
    with pytest.raises(VitrailError, match=r"not finite"):
        knn_accuracy(model, to_tensor, *folders, neighbours=3)
    tokens = torch.nn.Conv2d(3, 4, 1)
    with pytest.raises(VitrailError, match=r"\(6, 4, 16, 20\) for 6 images.*\(B, C\)"):
        knn_accuracy(tokens, to_tensor, *folders, neighbours=3)


def test_a_folder_without_classes_or_with_others_is_one_sentence(colours):
    given = (torch.nn.Flatten(), None)
    with pytest.raises(VitrailError, match=r"one folder of images for each class"):
        knn_accuracy(*given, colours / "train" / "red", colours / "val")
    (colours / "val" / "red").rename(colours / "val" / "green")
    with pytest.raises(VitrailError, match=r"class folder green is in only one of"):
        knn_accuracy(*given, colours / "train", colours / "val")
