"""Evaluate frozen features by classifiers: nearest neighbours and linear classifiers.

Protocols are DINOv2's (Oquab et al., 2024, App. B) and, of `cells`, DinoBloom's (Koch et al.,
2024). Features are the class token of the backbone, seen through the recipe's evaluation view.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from sklearn.metrics import balanced_accuracy_score, f1_score
from timm.data import create_transform
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Subset

from replication.config.recipes.self_supervision import SelfSupervisionRecipe
from replication.context import Trained, Values, passes
from replication.epoch_length import FIFTH
from replication.images.caching import KeptSamples
from replication.images.loading import EvaluationSamples, micro_batches
from replication.images.opening import SPLITS, Split, build
from replication.images.transforms import eval_transform, normalization
from replication.measures.packed_scores import BY_IMAGE, pack
from replication.measures.resume import forget, kept_path, kept_rows
from replication.papers.octic.dinov2.feature_classifiers import logistic_regression, nearest, vote
from replication.papers.octic.dinov2.network import teacher_file
from replication.training.model_factory import HALF, Precision, autocast
from vitrail.files import atomic_path
from vitrail.measures.loading import eval_loader
from vitrail.measures.outputs import require_finite
from vitrail.octic.group import ELEMENTS, transform
from vitrail.seeding import derive, seed_everything
from vitrail.weights_file import read_weights

if TYPE_CHECKING:
    from torch.utils.data import DataLoader, Dataset


NEIGHBOURS = (10, 20, 100, 200)
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1)
"""Learning rates of the linear classifiers at a batch of 256."""
BLOCKS = 4
TOKENS = "tokens"
"""The name under which class tokens are saved."""
SAVE_SECONDS = 600  # seconds between saves of linear classifiers during their training
Choice = tuple[int, bool, float]
"""A linear classifier: how many of the last blocks it reads, whether it reads the mean patch token,
and its learning rate."""


def _teachers(recipe: SelfSupervisionRecipe) -> range:
    """Return the steps after which teachers were saved, from 0 on."""
    return range(0, recipe.schedule.steps + 1, recipe.schedule.save_teacher_steps)


def _passes_of_knn(given: Mapping[str, Any]) -> float:
    train, val = given["train_images"], given["images"]
    if given["accuracy_alone"]:
        return (train + val) / val
    turned = val if given["turned"] is None else min(given["turned"], val)
    return (2 * (train + val) + len(ELEMENTS) * turned) / val


def _passes_of_progress(given: Mapping[str, Any]) -> float:
    images = given["train_images"] + given["images"]
    return len(_teachers(given["recipe"])) * images / given["images"]


@passes(_passes_of_knn)
def knn(
    trained: Trained[SelfSupervisionRecipe],
    batch_size: int = 128,
    neighbours: Sequence[int] = NEIGHBOURS,
    precision: Precision = "fp32",
    turned: int | None = None,
    accuracy_alone: bool = False,
) -> Values:
    """Classify by the nearest training images; also under the eight symmetries of the square.

    The model runs in `precision`, but in float64 on transformed images, as otherwise rounding would
    decide between neighbours at equal distances. The transformed images are `turned` validation
    images drawn by the seed, or all if None. With `accuracy_alone` no image is transformed, and the
    untrained model is not measured.

    Returns:
        ``top1/<k>`` in percent, and ``images``. Unless `accuracy_alone`, also for 20 neighbours (or
        the first number given): ``untrained``, the accuracy before the first step; ``rise``, the
        gain since then; ``equal``, the percentage of images with the same prediction under all
        eight symmetries; ``worst``, the lowest accuracy under a symmetry. The accuracy and ``rise``
        are also by image.
    """
    classes = trained.reads.classes
    bank, labels = class_tokens(trained, "train", batch_size, precision)
    queries, truth = class_tokens(trained, "val", batch_size, precision)
    headline = 20 if 20 in neighbours else neighbours[0]
    voted = vote(bank, labels, queries, classes, neighbours)
    top1 = {f"top1/{k}": percent(voted[k] == truth) for k in neighbours}
    right = voted[headline] == truth
    if accuracy_alone:
        return {**top1, "images": len(truth)}
    exact = replace(trained, model=copy.deepcopy(trained.model).double())
    generator = torch.Generator().manual_seed(derive("turned images", trained.seed))
    chosen = torch.randperm(len(truth), generator=generator)[:turned].sort().values.tolist()
    predicted = []
    for element in ELEMENTS:
        seen, wanted = class_tokens(
            exact, "val", batch_size, elements=itertools.repeat(element), chosen=chosen
        )
        predicted.append(vote(bank, labels, seen, classes, neighbours)[headline])
    stacked = torch.stack(predicted)
    (before,) = _right_of_teachers(trained, [0], batch_size, headline, precision)
    forget(exact, TOKENS)
    return {
        **top1,
        "untrained": percent(before),
        "rise": top1[f"top1/{headline}"] - percent(before),
        "equal": percent((stacked == stacked[0]).all(0)),
        "worst": min(percent(found == wanted) for found in predicted),
        "images": len(truth),
        f"top1/{headline}{BY_IMAGE}": pack(right.tolist()),
        f"rise{BY_IMAGE}": pack((right.int() - before.int()).tolist()),
    }


@passes(_passes_of_progress)
def progress(
    trained: Trained[SelfSupervisionRecipe],
    batch_size: int = 128,
    neighbours: int = 20,
    precision: Precision = "fp32",
) -> Values:
    """Classify by nearest neighbours with every teacher that the training saved (Figure 7).

    Returns:
        ``share/<n>``, top-1 accuracy in percent after n percent of the training; the lists
        ``steps``, after which teachers were saved, and ``top1``, their accuracies.
    """
    steps, whole = _teachers(trained.recipe), trained.recipe.schedule.steps
    found = _right_of_teachers(trained, steps, batch_size, neighbours, precision)
    top1 = [percent(right) for right in found]
    shares = [f"share/{round(100 * step / whole)}" for step in steps]
    return {**dict(zip(shares, top1, strict=True)), "steps": list(steps), "top1": top1}


def _right_of_teachers(
    trained: Trained[SelfSupervisionRecipe],
    steps: Sequence[int],
    batch_size: int,
    neighbours: int,
    precision: Precision,
) -> list[Tensor]:
    """Return for the teacher of each step which images it classifies correctly (k-NN)."""
    found, last = [], copy.deepcopy(trained.model.state_dict())
    for step in steps:
        trained.model.load_state_dict(read_weights(teacher_file(trained.folder, step)))
        found.append(_right_of_teacher(trained, batch_size, neighbours, precision))
        if step < trained.recipe.schedule.steps:  # `knn` may use the last teacher's tokens again
            forget(trained, TOKENS)
    trained.model.load_state_dict(last)
    return found


def _right_of_teacher(
    trained: Trained[SelfSupervisionRecipe], batch_size: int, neighbours: int, precision: Precision
) -> Tensor:
    """Return which images the model classifies correctly (k-NN); the result is saved as one row."""
    decided = {"batch": batch_size, "neighbours": neighbours, "precision": precision}
    with kept_rows(trained, "right", **decided) as rows:
        if done := rows.read():
            return done[0][0]
        bank, labels = class_tokens(trained, "train", batch_size, precision)
        queries, truth = class_tokens(trained, "val", batch_size, precision)
        voted = vote(bank, labels, queries, trained.reads.classes, [neighbours])
        right = voted[neighbours] == truth
        rows.append(right[None])
    return right


@passes(lambda given: (given["train_images"] + 3 * given["images"]) / given["images"])
def cells(
    trained: Trained[SelfSupervisionRecipe], batch_size: int = 128, precision: Precision = "fp32"
) -> Values:
    """Classify by 1 and 20 neighbours and by logistic regression, as DinoBloom does (Table 9).

    Source: octic, App. E.3.

    Neighbours are the nearest in L2, and have equal votes; features of the model in `precision` are
    not normalised.

    Returns:
        ``<1-NN|20-NN|linear>/<wF1|Acc|bAcc>`` in percent: F1 weighted by the number of images of
        each class, accuracy, and mean recall over classes; ``turned``, the change of the accuracy
        of 20 neighbours, in points, when each image is turned by a random multiple of 90 degrees.
        Both its accuracies are computed in float64, as otherwise rounding would decide between
        neighbours at equal distances.
    """
    bank, labels = class_tokens(trained, "train", batch_size, precision)
    queries, truth = class_tokens(trained, "val", batch_size, precision)
    bank, queries = bank.float(), queries.float()
    classes = trained.reads.classes
    near = {k: nearest(bank, labels, classes, k) for k in (1, 20)}
    fitted = logistic_regression(bank, labels, classes, strength=bank.shape[1] * classes / 100)
    predicted = {f"{k}-NN": near[k](queries).cpu() for k in near}
    predicted["linear"] = fitted(queries).argmax(1).cpu()
    exact = replace(trained, model=copy.deepcopy(trained.model).double())
    turns = np.random.RandomState(trained.seed).choice(ELEMENTS[:4], size=len(truth))
    near[20] = nearest(bank.double(), labels, classes, 20)
    right = []
    for elements in (["e"] * len(truth), turns):
        queries, _ = class_tokens(exact, "val", batch_size, elements=elements)
        right.append(percent(near[20](queries).cpu() == truth))
    forget(exact, TOKENS)
    values: dict[str, float] = {"turned": right[1] - right[0]}
    for name, found in predicted.items():
        values[f"{name}/wF1"] = 100 * f1_score(truth, found, average="weighted")
        values[f"{name}/Acc"] = percent(found == truth)
        values[f"{name}/bAcc"] = 100 * balanced_accuracy_score(truth, found)
    return values


def _passes_of_linear(given: Mapping[str, Any]) -> float:
    trained_on = 2 * given["steps"] * given["batch_size"]
    chosen_on = max(1, given["train_images"] // FIFTH)
    return 1 + (trained_on + chosen_on) / given["images"]


@passes(_passes_of_linear)
def linear(
    trained: Trained[SelfSupervisionRecipe],
    steps: int = 12500,
    batch_size: int = 128,
    rates: Sequence[float] = RATES,
    precision: Precision = "fp32",
) -> Values:
    """Train linear classifiers on frozen features of random crops, all at once.

    The model runs in `precision`, classifiers in float32. The default batch of 128 images is that
    of the command in the released code's documentation, which runs on one GPU.

    There is one classifier for each combination of learning rate, of the class token of the last
    block or of the last four, and with or without the mean patch token. They are trained by SGD
    with momentum 0.9 and a cosine schedule to zero. One of them is chosen by training all on four
    fifths of the training images and comparing their accuracy on the other fifth.

    Returns:
        ``top1``, the accuracy of the classifier that is best on the validation images, as DINOv2
        reports it; ``held_out``, that of the chosen one, without the bias of this selection;
        ``images``. For both, classifiers are trained on all training images.
    """
    probe = _LinearProbe(trained, steps, batch_size, list(rates), precision)
    train, val = (build(trained.reads, split, trained.data_root, trained.seed) for split in SPLITS)
    generator = torch.Generator().manual_seed(derive("linear probe", trained.seed))
    order = torch.randperm(len(cast(Any, train)), generator=generator).tolist()
    first = max(1, len(order) // FIFTH)
    with kept_rows(trained, "chosen", **probe.decided) as rows:
        if done := rows.read():
            chosen = int(done[0])
        else:
            fitted = probe.fit("fitted", Subset(train, order[first:]))
            chosen = int(probe.right(fitted, Subset(train, order[:first])).mean(1).argmax())
            rows.append(torch.tensor([chosen]))
    right = probe.right(probe.fit("all", train), val)
    forget(trained, "linear")
    forget(trained, "chosen")
    top1 = 100 * right.mean(1)
    return {"top1": top1.max().item(), "held_out": top1[chosen].item(), "images": right.shape[1]}


@dataclass(frozen=True)
class _LinearProbe:
    """The training of linear classifiers on frozen features; fields are arguments of `linear`."""

    trained: Trained[SelfSupervisionRecipe]
    steps: int
    batch_size: int
    rates: list[float]
    precision: Precision

    @property
    def decided(self) -> dict[str, Any]:
        """The fields without the trained model; they identify saved rows of a measurement."""
        return {field.name: getattr(self, field.name) for field in fields(self)[1:]}

    def fit(self, part: str, images: Dataset[Any]) -> dict[Choice, nn.Linear]:
        """Train all classifiers on `images`; they are saved meanwhile under the name `part`."""
        trained, recipe = self.trained, self.trained.recipe
        seed_everything("linear probe", trained.seed)
        classifiers = self._begin()
        groups = [
            {"params": list(layer.parameters()), "lr": rate * self.batch_size / 256}
            for (_, _, rate), layer in classifiers.items()
        ]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        mean, std = normalization(trained.reads, recipe.data.normalization)
        crop: Any = create_transform(
            recipe.data.image_size,
            is_training=True,
            hflip=recipe.crops.hflip,
            color_jitter=None,  # type: ignore[arg-type]
            interpolation=recipe.data.interpolation,
            mean=mean,
            std=std,
        )
        samples = KeptSamples(images, crop, trained.seed)
        size = min(self.batch_size, len(samples))
        kept = kept_path(trained, "linear", part=part, **self.decided)
        learned: list[Any] = [nn.ModuleList(classifiers.values()), optimizer, schedule]
        start, saved = 0, time.monotonic()
        if kept is not None and kept.is_file():
            start, *states = torch.load(kept, map_location=trained.device, weights_only=True)
            for each, state in zip(learned, states, strict=True):
                each.load_state_dict(state)
        for batch in micro_batches(
            samples, size=size, micro=size, start=start, stop=self.steps, workers=trained.workers
        ):
            labels = batch.labels.to(trained.device)
            logits = _logits(classifiers, _last_tokens(trained, batch.images, self.precision))
            torch.stack(
                [functional.cross_entropy(of_classifier, labels) for of_classifier in logits]
            ).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            if kept is not None and time.monotonic() - saved >= SAVE_SECONDS:
                with atomic_path(kept) as file:
                    torch.save([batch.step + 1, *(each.state_dict() for each in learned)], file)
                saved = time.monotonic()
        return classifiers

    def _begin(self) -> dict[Choice, nn.Linear]:
        """Make the untrained classifiers."""
        model: Any = self.trained.model
        classifiers: dict[Choice, nn.Linear] = {}
        last = min(BLOCKS, len(model.blocks))
        for n, with_mean, rate in itertools.product((1, last), (False, True), self.rates):
            layer = nn.Linear(model.num_features * (n + with_mean), self.trained.reads.classes)
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)
            classifiers[n, with_mean, rate] = layer.to(self.trained.device)
        return classifiers

    def right(self, classifiers: dict[Choice, nn.Linear], images: Dataset[Any]) -> Tensor:
        """Return which images are classified correctly: ``(classifiers, images)`` of 0 and 1."""
        hits = []
        with torch.inference_mode():
            for seen, truth in _batches(self.trained, images, self.batch_size):
                logits = _logits(classifiers, _last_tokens(self.trained, seen, self.precision))
                found = torch.stack([of_classifier.argmax(1) for of_classifier in logits])
                hits.append(found.cpu() == truth)
        return torch.cat(hits, dim=1).double()


def class_tokens(
    trained: Trained[SelfSupervisionRecipe],
    split: Split,
    batch_size: int,
    precision: Precision = "fp32",
    elements: Iterable[str] = itertools.repeat("e"),
    chosen: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return class tokens ``(M, C)`` of a split, on the device, and labels ``(M,)``.

    Image i is transformed by the i-th of the symmetries `elements`; `chosen` are indices of images,
    None is all. Tokens are in `precision`, or in the model's dtype if `precision` is fp32. Within
    `keeping`, tokens are saved, and other measures of the same model use them.
    """
    dtype = next(trained.model.parameters()).dtype
    images = build(trained.reads, split, trained.data_root, trained.seed)
    order = list(range(len(cast(Any, images))) if chosen is None else chosen)
    under = list(itertools.islice(elements, len(order)))
    seen_as = hashlib.sha256(f"{order} {under}".encode()).hexdigest()
    decided = {"split": split, "batch": batch_size, "precision": precision, "seen": seen_as}
    with kept_rows(trained, TOKENS, **decided) as rows:
        done = rows.read(batch_size, len(order))
        found, labels = [part.to(trained.device) for part in done[:1]], done[1:]
        start = len(labels[0]) if labels else 0
        if start < len(order):
            waiting = iter(under[start:])
            if start or chosen is not None:
                images = Subset(images, order[start:])
            with torch.inference_mode(), autocast(trained.device, precision):
                for pictures, truth in _batches(trained, images, batch_size):
                    seen = torch.stack([transform(image, next(waiting)) for image in pictures])
                    tokens = require_finite(
                        trained.model(seen.to(trained.device, dtype)), "features"
                    )
                    found.append(tokens.to(HALF.get(precision, dtype)))
                    labels.append(truth)
                    rows.append(found[-1], truth)
    return torch.cat(found), torch.cat(labels)


def percent(right: Tensor) -> float:
    """Return the share of true values, in percent."""
    return 100 * right.double().mean().item()


def _batches(
    trained: Trained[SelfSupervisionRecipe], images: Dataset[Any], size: int
) -> DataLoader[tuple[Tensor, int]]:
    samples = EvaluationSamples(images, eval_transform(trained.recipe, trained.reads))
    return eval_loader(samples, size, trained.workers, trained.device)


def _last_tokens(
    trained: Trained[SelfSupervisionRecipe], images: Tensor, precision: Precision
) -> list[tuple[Tensor, Tensor]]:
    """Return normalised patches ``(B, N, C)`` and class token ``(B, C)`` of the last blocks."""
    model: Any = trained.model
    count = min(BLOCKS, len(model.blocks))
    options = {"return_prefix_tokens": True, "norm": True, "intermediates_only": True}
    with torch.inference_mode(), autocast(trained.device, precision):
        images = images.to(trained.device, non_blocking=True)
        taken = model.forward_intermediates(images, count, output_fmt="NLC", **options)
    return [
        (
            require_finite(patches, "features").float().clone(),
            require_finite(prefix[:, 0], "features").float().clone(),
        )
        for patches, prefix in taken
    ]


def _logits(
    classifiers: dict[Choice, nn.Linear], tokens: list[tuple[Tensor, Tensor]]
) -> list[Tensor]:
    logits = []
    for (n, mean, _), layer in classifiers.items():
        chosen = [cls for _, cls in tokens[-n:]]
        if mean:
            chosen.append(tokens[-1][0].mean(1))
        logits.append(layer(torch.cat(chosen, dim=1)))
    return logits
