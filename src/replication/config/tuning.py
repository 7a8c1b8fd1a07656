"""Learning rates tuned on held-out images, and how good the tuned models are.

A scale of a paper names the recipes that are searched, each group on one grid of rates, and for
each of them the recipes that take its best rate (the recipes that it covers). A trial is an
ordinary run of a searched recipe with a rate of the grid and ``data.part: tuning``: it trains on a
part of the training images and is judged on the rest. ``vitrail search`` makes the trials and adds
their scores to ``searched.csv`` in the paper's folder; from then on the rate of a covered recipe is
read there. The same scores tell whether a model is trained to its plateau and whether it is better
than the pixel baselines (`TuningResult`).
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
"""The first seed of trials, so that they share no seed with published runs."""

BASELINE = "pixel baseline: "
"""The prefix of a pixel baseline's name in the column `recipe`."""

BASELINES = ("1-NN", "20-NN", "logistic regression")
MASK_BASELINES = ("class by place", "logistic regression")
"""The pixel baselines of images with labels (`BASELINES`) and of images with masks."""


class SearchGroup(Strict):
    """Recipes that are searched on one grid; comparisons are fair within a group.

    Each recipe of `of` is trained at each rate under each seed, and then at the best rate for twice
    as many steps under each seed.
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
        """Return the seeds of the trials."""
        return range(FIRST_SEED, FIRST_SEED + self.seeds)


class Trial(NamedTuple):
    """A trial: what was trained under which seed; ``searched.csv`` adds its scale and score.

    `digest` is that of recipe and dataset (`setting_of`). `length` is 1, or 2 for twice the
    recipe's steps. The row of a pixel baseline has the `images_digest` of the dataset and the rate
    0.
    """

    recipe: str
    dataset: str
    digest: str
    length: int
    rate: float
    seed: int

    def of(self, recipe: Training) -> Training:
        """Return the recipe that this trial trains, made from the searched `recipe`."""
        return recipe.with_rate(self.rate).longer(self.length).on_part("tuning")


COLUMNS = ("scale", *Trial._fields, "held_out")


class TuningResult(Strict):
    """The result of a search for a recipe that it covers, in percent on held-out images.

    `searched` is the recipe that was searched, on `dataset`. `rates` has the mean score at each
    rate of the grid; `once` and `twice` are the means at the best rate for the recipe's own steps
    and for twice as many; `baselines` are the scores of the pixel baselines. `chance` is the score
    of guessing, and `images` the number of held-out images over all seeds.
    """

    searched: str
    dataset: str
    rates: dict[float, float]
    once: float
    twice: float
    baselines: dict[str, float]
    chance: float
    images: int

    @property
    def baseline(self) -> tuple[str, float] | None:
        """Return the best pixel baseline and its score; None if there is none."""
        return max(self.baselines.items(), key=lambda item: item[1], default=None)


class Searches:
    """The groups of searches of a paper at one scale, and the scores that were found so far."""

    def __init__(self, groups: Iterable[SearchGroup], found: Mapping[Trial, float]) -> None:
        self.groups, self.found = tuple(groups), found

    @property
    def searched(self) -> list[str]:
        """Return the names of the recipes that are searched."""
        return [name for group in self.groups for name in group.of]

    def covering(self, name: str) -> str | None:
        """Return the searched recipe whose rate a recipe takes; None if none covers it.

        A recipe that is searched itself takes its own rate; if several patterns match, the last
        counts.
        """
        searched = [item for group in self.groups for item in group.of.items()]
        if name in dict(searched):
            return name
        return next((own for own, patterns in reversed(searched) if match(name, patterns)), None)

    def own(self, name: str) -> SearchGroup:
        """Return the group of a recipe that is searched itself."""
        return next(group for group in self.groups if name in group.of)

    def trials(self, name: str, recipe: Training, info: DatasetInfo) -> dict[float, list[Trial]]:
        """Return the trials of a searched recipe with its own number of steps, by their rates."""
        group, same = self.own(name), (name, info.name, setting_of(recipe, info), 1)
        return {rate: [Trial(*same, rate, seed) for seed in group.drawn] for rate in group.rates}

    def longer_trials(self, name: str, recipe: Training, info: DatasetInfo) -> list[Trial]:
        """Return the trials of twice a searched recipe's steps; [] without its best rate."""
        best, trials = self.best_rate(name, recipe, info), self.trials(name, recipe, info)
        return [trial._replace(length=2) for trial in trials[best]] if best else []

    def baseline_trials(self, info: DatasetInfo) -> list[Trial]:
        """Return the rows of the pixel baselines of a searched recipe's dataset, for each seed."""
        rules = MASK_BASELINES if info.segmentation else BASELINES
        same = info.name, images_digest(info), 1, 0.0
        seeds = max((group.drawn for group in self.groups), key=len)
        return [Trial(BASELINE + rule, *same, seed) for rule in rules for seed in seeds]

    def best_rate(self, name: str, recipe: Training, info: DatasetInfo) -> float | None:
        """Return the rate of the best mean, the lowest of equals; None if a trial is missing."""
        means = {
            rate: self._mean(trials) for rate, trials in self.trials(name, recipe, info).items()
        }
        known = {rate: mean for rate, mean in sorted(means.items()) if mean is not None}
        return max(known, key=known.__getitem__) if len(known) == len(means) else None

    def result(self, name: str, recipe: Training, info: DatasetInfo) -> TuningResult | None:
        """Return the result of a searched recipe; None while a trial is missing."""
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
            dataset=info.name,
            rates=rates,
            once=max(rates.values()),
            twice=twice,
            baselines={rule: statistics.fmean(scores) for rule, scores in baselines.items()},
            chance=100 / info.classes,
            images=info.of_part("tuning").val_images * self.own(name).seeds,
        )

    def _mean(self, trials: Iterable[Trial]) -> float | None:
        """Return the mean score of some trials; None if there are none, or one is missing."""
        scores = [self.found.get(trial) for trial in trials]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if known and len(known) == len(scores) else None


def setting_of(recipe: Training, info: DatasetInfo) -> str:
    """Return the digest of a recipe without its learning rate, and of its dataset."""
    return short_hash([recipe.with_rate(1.0).canonical_json(), info.identity_fields])


def images_digest(info: DatasetInfo) -> str:
    """Return the digest of what decides the images and labels of a dataset."""
    return short_hash(info.identity_fields)


def read_found(path: Path) -> dict[Trial, float]:
    """Read the scores of ``searched.csv``; {} if there is no such file.

    Raises:
        VitrailError: it cannot be read, or has other columns than `COLUMNS`.
    """
    return {trial: score for _, trial, score in _rows(path)}


def _rows(path: Path) -> list[tuple[str, Trial, float]]:
    """Return the scale, trial and score of each row."""
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
    """Add the scores of trials to ``searched.csv``; a trial that is already there keeps its row.

    Raises:
        VitrailError: as `read_found`, or if the file cannot be written.
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
    """Return the shortest text that reads back as the same number."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)
