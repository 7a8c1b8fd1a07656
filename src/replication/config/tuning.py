"""Searches of learning rates on held-out images: what recipes take from them, and how models stand.

A scale of a paper names the recipes that are searched, all of a group on one grid of rates, and for
each the recipes that take its best rate. ``vitrail search`` trains them on a part of the training
images, judges them on the rest, and adds what it finds to ``searched.csv`` in the paper's folder.
The rate of a covered recipe is then read from there. The same rows tell whether a model is trained
to its plateau and whether it is better than rules that need no network (`Standing`).
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field, PositiveFloat

from replication.config.recipe import short_hash
from replication.config.schema import Strict, match
from replication.counting import FIFTH
from vitrail.errors import VitrailError, first_line

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training

COLUMNS = ("recipe", "dataset", "setting", "length", "rate", "seed", "held_out", "cpu_seconds")
FIRST_SEED = 100
"""Searches draw from this seed on: others than those of published runs."""

FLOORS = "floor: "
"""What stands before the name of a rule that needs no network, in the column `recipe`."""


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
    """A row of ``searched.csv`` but for its score: what was trained, and for how long."""

    recipe: str
    dataset: str
    setting: str
    length: int
    rate: float
    seed: int


class Score(NamedTuple):
    """What a trial came to: percent on held-out images, and the seconds of one core it took."""

    held_out: float
    cpu_seconds: float


class Standing(Strict):
    """What a search says of a recipe that it covers, in percent on held-out images.

    `rates` has the mean at each rate of the grid, `once` and `twice` the means at the best rate for
    the recipe's own steps and for twice as many, `floors` the scores of rules without a network.
    """

    searched: str
    rates: dict[float, float]
    once: float
    twice: float
    floors: dict[str, float]
    chance: float
    images: int

    @property
    def floor(self) -> tuple[str, float] | None:
        """The best rule without a network, and its score."""
        return max(self.floors.items(), key=lambda item: item[1], default=None)


class Searches:
    """The groups of a paper at one scale, and what was found so far."""

    def __init__(self, groups: Iterable[SearchGroup], found: Mapping[Trial, Score]) -> None:
        self.groups, self.found = tuple(groups), found

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

    def best_rate(self, name: str, recipe: Training, info: DatasetInfo) -> float | None:
        """The rate of the best mean, of equal ones the lowest; None while a trial is missing."""
        means = {
            rate: self._mean(trials) for rate, trials in self.trials(name, recipe, info).items()
        }
        known = {rate: mean for rate, mean in sorted(means.items()) if mean is not None}
        return max(known, key=known.__getitem__) if len(known) == len(means) else None

    def standing(self, name: str, recipe: Training, info: DatasetInfo) -> Standing | None:
        """What is known of a searched recipe; None while a trial is missing."""
        twice = self._mean(self.longer_trials(name, recipe, info))
        if twice is None:
            return None
        rates = {
            rate: self._mean(trials) or 0.0
            for rate, trials in self.trials(name, recipe, info).items()
        }
        floors = defaultdict[str, list[float]](list)
        for trial, score in self.found.items():
            if trial.recipe.startswith(FLOORS) and trial.setting == world_of(info):
                floors[trial.recipe.removeprefix(FLOORS)].append(score.held_out)
        return Standing(
            searched=name,
            rates=rates,
            once=max(rates.values()),
            twice=twice,
            floors={rule: statistics.fmean(scores) for rule, scores in floors.items()},
            chance=100 / info.classes,
            images=held_out_images(info) * self.own(name).seeds,
        )

    def _mean(self, trials: Iterable[Trial]) -> float | None:
        """The mean score of some trials; None where there are none, or one is missing."""
        scores = [self.found.get(trial) for trial in trials]
        held_out = [score.held_out for score in scores if score]
        return statistics.fmean(held_out) if held_out and len(held_out) == len(scores) else None


def setting_of(recipe: Training, info: DatasetInfo) -> str:
    """The digest of what a trial trains but for its rate: recipe and dataset."""
    return short_hash([recipe.with_rate(1.0).canonical_json(), info.identity_fields])


def world_of(info: DatasetInfo) -> str:
    """The digest of what a rule without a network reads: the images of a dataset."""
    return short_hash(info.identity_fields)


def held_out_images(info: DatasetInfo) -> int:
    """How many training images a search holds out: every fifth."""
    return -(-info.train_images // FIFTH)


def read_found(path: Path) -> dict[Trial, Score]:
    """Read ``searched.csv``; empty where there is no such file.

    Raises:
        VitrailError: it cannot be read, or has other columns than `COLUMNS`.
    """
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
            return {
                Trial(
                    row["recipe"],
                    row["dataset"],
                    row["setting"],
                    int(row["length"]),
                    float(row["rate"]),
                    int(row["seed"]),
                ): Score(float(row["held_out"]), float(row["cpu_seconds"]))
                for row in reader
            }
    except (OSError, ValueError, TypeError) as error:
        raise VitrailError(
            f"cannot read {path} ({first_line(error)}); restore it with git checkout"
        ) from None


def _exact(rate: float) -> str:
    """A rate as text that reads back as the same number, as short as that can be."""
    short = f"{rate:g}"
    return short if float(short) == rate else repr(rate)


def add_found(path: Path, trial: Trial, score: Score) -> None:
    """Append a row to ``searched.csv``, which is begun with its header."""
    new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        numbers = (f"{score.held_out:.2f}", f"{score.cpu_seconds:.1f}")
        writer.writerow([*trial[:4], _exact(trial.rate), trial.seed, *numbers])
