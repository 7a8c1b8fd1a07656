"""Learning rates tuned on held-out images: what recipes take from them, and how models do.

A scale of a paper names the recipes that are searched, all of a group on one grid of rates, and for
each the recipes that take its best rate. A trial is an ordinary run of such a recipe with a rate of
the grid and ``data.part: tuning``: on a part of the training images, judged on the rest. ``vitrail
search`` makes the trials and adds their scores to ``searched.csv`` in the paper's folder. The rate
of a covered recipe is then read from there. The same rows tell whether a model is trained to its
plateau and whether it is better than the pixel baselines (`TuningResult`).
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field, PositiveFloat

from replication.config.recipe import short_hash
from replication.config.schema import Strict, match
from vitrail.errors import VitrailError, first_line
from vitrail.files import write_atomically

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training

FIRST_SEED = 100
"""Trials are seeded from this number on: by others than published runs."""

BASELINE = "pixel baseline: "
"""What stands before the name of a pixel baseline, in the column `recipe`."""

BASELINES = ("1-NN", "20-NN", "logistic regression")
MASK_BASELINES = ("class by place", "logistic regression")
"""The pixel baselines of images with labels, and of images with masks."""


class SearchGroup(Strict):
    """Recipes that are searched on one grid; comparisons are fair within a group.

    Each recipe of `of` is trained at each rate under each seed, then under each seed at the best
    rate for twice as long.
    """

    rates: tuple[PositiveFloat, ...] = Field(
        min_length=3, description="learning rates that all try"
    )
    seeds: int = Field(2, ge=1, description="trainings of each rate")
    of: dict[str, str] = Field(
        description="searched recipe -> patterns of the recipes that take its best rate"
    )

    @property
    def drawn(self) -> range:
        """The seeds of the trials."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


class Trial(NamedTuple):
    """What was trained, under which seed: a row of ``searched.csv`` but for scale and score.

    `digest` is that of recipe and dataset, `length` 1, or 2 for twice the recipe's steps. A row of
    a pixel baseline has the `images_digest` of the dataset and the rate 0.
    """

    recipe: str
    dataset: str
    digest: str
    length: int
    rate: float
    seed: int

    def of(self, recipe: Training) -> Training:
        """The recipe that this trial trains, made of the one that is searched."""
        return recipe.with_rate(self.rate).longer(self.length).on_part("tuning")


COLUMNS = ("scale", *Trial._fields, "held_out")


class TuningResult(Strict):
    """What a search found of a recipe that it covers, in percent on held-out images.

    `rates` has the mean at each rate of the grid, `once` and `twice` the means at the best rate for
    the recipe's own steps and for twice as many, `baselines` the scores of the pixel baselines.
    """

    searched: str
    rates: dict[float, float]
    once: float
    twice: float
    baselines: dict[str, float]
    chance: float
    images: int

    @property
    def baseline(self) -> tuple[str, float] | None:
        """The best pixel baseline, and its score."""
        return max(self.baselines.items(), key=lambda item: item[1], default=None)


class Searches:
    """The groups of a paper at one scale, and the scores that were found so far."""

    def __init__(self, groups: Iterable[SearchGroup], found: Mapping[Trial, float]) -> None:
        self.groups, self.found = tuple(groups), found

    @property
    def searched(self) -> list[str]:
        """The names of the recipes that are searched."""
        return [name for group in self.groups for name in group.of]

    def covering(self, name: str) -> str | None:
        """The searched recipe whose rate a recipe takes; None if it is not covered.

        A recipe that is searched itself takes its own; of several patterns the last counts.
        """
        searched = [item for group in self.groups for item in group.of.items()]
        if name in dict(searched):
            return name
        return next((own for own, patterns in reversed(searched) if match(name, patterns)), None)

    def own(self, name: str) -> SearchGroup:
        """The group of a recipe that is searched itself."""
        return next(group for group in self.groups if name in group.of)

    def trials(self, name: str, recipe: Training, info: DatasetInfo) -> dict[float, list[Trial]]:
        """The trials of a searched recipe's own length, by their rates."""
        group, same = self.own(name), (name, info.name, setting_of(recipe, info), 1)
        return {rate: [Trial(*same, rate, seed) for seed in group.drawn] for rate in group.rates}

    def longer_trials(self, name: str, recipe: Training, info: DatasetInfo) -> list[Trial]:
        """The trials of twice a searched recipe's length; none before its best rate is known."""
        best, trials = self.best_rate(name, recipe, info), self.trials(name, recipe, info)
        return [trial._replace(length=2) for trial in trials[best]] if best else []

    def baseline_trials(self, info: DatasetInfo) -> list[Trial]:
        """The rows of the pixel baselines of a searched recipe's dataset, under each seed."""
        rules = MASK_BASELINES if info.segmentation else BASELINES
        same = info.name, images_digest(info), 1, 0.0
        seeds = max((group.drawn for group in self.groups), key=len)
        return [Trial(BASELINE + rule, *same, seed) for rule in rules for seed in seeds]

    def best_rate(self, name: str, recipe: Training, info: DatasetInfo) -> float | None:
        """The rate of the best mean, of equal ones the lowest; None while a trial is missing."""
        means = {
            rate: self._mean(trials) for rate, trials in self.trials(name, recipe, info).items()
        }
        known = {rate: mean for rate, mean in sorted(means.items()) if mean is not None}
        return max(known, key=known.__getitem__) if len(known) == len(means) else None

    def result(self, name: str, recipe: Training, info: DatasetInfo) -> TuningResult | None:
        """What is known of a searched recipe; None while a trial is missing."""
        twice = self._mean(self.longer_trials(name, recipe, info))
        if twice is None:
            return None
        rates = {
            rate: self._mean(trials) or 0.0
            for rate, trials in self.trials(name, recipe, info).items()
        }
        baselines = defaultdict[str, list[float]](list)
        for trial, score in self.found.items():
            if trial.recipe.startswith(BASELINE) and trial.digest == images_digest(info):
                baselines[trial.recipe.removeprefix(BASELINE)].append(score)
        return TuningResult(
            searched=name,
            rates=rates,
            once=max(rates.values()),
            twice=twice,
            baselines={rule: statistics.fmean(scores) for rule, scores in baselines.items()},
            chance=100 / info.classes,
            images=info.of_part("tuning").val_images * self.own(name).seeds,
        )

    def _mean(self, trials: Iterable[Trial]) -> float | None:
        """The mean score of some trials; None where there are none, or one is missing."""
        scores = [self.found.get(trial) for trial in trials]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if known and len(known) == len(scores) else None


def setting_of(recipe: Training, info: DatasetInfo) -> str:
    """The digest of a recipe without its learning rate, and of its dataset."""
    return short_hash([recipe.with_rate(1.0).canonical_json(), info.identity_fields])


def images_digest(info: DatasetInfo) -> str:
    """The digest of what decides the images and labels of a dataset."""
    return short_hash(info.identity_fields)


def read_found(path: Path) -> dict[Trial, float]:
    """Read the scores of ``searched.csv``; empty where there is no such file.

    Raises:
        VitrailError: it cannot be read, or has other columns than `COLUMNS`.
    """
    return {trial: score for _, trial, score in _rows(path)}


def _rows(path: Path) -> list[tuple[str, Trial, float]]:
    """Each row's scale, trial and score."""
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, strict=True)
            if tuple(next(reader, ())) != COLUMNS:
                raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
            return [
                (
                    scale,
                    Trial(recipe, dataset, digest, int(length), float(rate), int(seed)),
                    float(held_out),
                )
                for scale, recipe, dataset, digest, length, rate, seed, held_out in reader
            ]
    except (OSError, ValueError, csv.Error) as error:
        raise VitrailError(
            f"cannot read {path} ({first_line(error)}); restore it with git checkout"
        ) from None


def add_found(path: Path, scale: str, found: Mapping[Trial, float]) -> None:
    """Add the scores of trials to ``searched.csv``; a trial that it has keeps its row.

    Raises:
        VitrailError: as `read_found`, or the file cannot be written.
    """
    rows = _rows(path)
    known = {trial for _, trial, _ in rows}
    rows += [(scale, trial, score) for trial, score in found.items() if trial not in known]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for own, trial, score in rows:
        exact = trial._replace(rate=_exact(trial.rate))  # type: ignore[arg-type]  # as text
        writer.writerow([own, *exact, f"{score:.6g}"])
    write_atomically(path, text.getvalue())


def _exact(number: float) -> str:
    """A number as text that reads back as the same one, as short as that can be."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)
