"""The table of a paper's searches at a scale: trials as ordinary runs, judged on held-out images.

Its target is ``<paper>_search``. Of twice the steps it has numbers once the best rate of a recipe
is in ``searched.csv``, which ``vitrail search`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from replication.config.paper import Labelled
from replication.config.recipe import short_hash
from replication.config.tuning import BASELINE
from replication.plan.graph import Artifact, Cell, Measurement, Run

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training
    from replication.config.tuning import Trial
    from replication.plan.catalog import Paper

SEARCH = "search"
COLUMNS = {1: "Score", 2: "Score with twice the steps"}
PIXEL_BASELINES = "replication.measures.pixel_baselines:pixel_baselines"


class Score(NamedTuple):
    """Where the score of a trial is: the value `key` of a measurement, under the trial's seed."""

    measurement: Measurement
    key: str


def search_table(paper: Paper, scores: dict[Trial, Score]) -> Artifact | None:
    """The table of a paper's searches at its scale; None where it searches nothing."""
    if not scores:
        return None
    measurements = tuple(dict.fromkeys(score.measurement for score in scores.values()))
    read = {trial.dataset for trial in scores}
    cells = {trial._replace(seed=0): _cell(trial, score) for trial, score in scores.items()}
    return Artifact(
        paper=paper.name,
        name=SEARCH,
        kind="table",
        title="Learning rates tried on held-out images",
        caption="Every fifth training image is held out, and the others train. Test images are "
        "not opened.",
        source=f"searches of {paper.folder.name} at this scale",
        note="",
        row_header="Recipe and learning rate",
        rows=tuple(dict.fromkeys(cell.row for cell in cells.values())),
        columns=tuple(Labelled(label=label) for label in COLUMNS.values()),
        cells=tuple(cells.values()),
        measurements=measurements,
        draw=None,
        digits=2,
        stand_ins={here: own for here, own in paper.names_replaced.items() if here in read},
    )


def trial_scores(paper: Paper, runs_root: Path) -> dict[Trial, Score]:
    """The trials of a paper's searches at its scale, and where their scores are.

    Raises:
        VitrailError: a recipe that is searched is not valid, or starts from another's weights.
    """
    folder, searches = runs_root / paper.name, paper.searches
    found: dict[Trial, Score] = {}
    for name in searches.searched:
        if paper.without(name):
            continue
        recipe, info = paper.searched(name)
        longer = searches.longer_trials(name, recipe, info)
        for trials in (
            *searches.trials(name, recipe, info).values(),
            *([longer] if longer else []),
        ):
            run = _run(paper.name, trials, recipe, info, folder)
            measured = {"seeds": run.seeds, "device": paper.scale.device}
            score = _measurement(paper.name, recipe.score[0], run.folder, run, measured)
            found |= dict.fromkeys(trials, Score(score, recipe.score[1]))
        trials = searches.baseline_trials(info)
        read = {"args": {"part": "tuning"}, "seeds": _seeds(trials), "datasets": (info.name,)}
        pixels = _measurement(paper.name, PIXEL_BASELINES, folder, None, read)
        for trial in trials:
            found[trial] = Score(pixels, trial.recipe.removeprefix(BASELINE))
    return found


def _run(
    paper: str, trials: Sequence[Trial], recipe: Training, info: DatasetInfo, folder: Path
) -> Run:
    """The run of trials that differ in their seeds."""
    trial = trials[0]
    tried: Any = trial.of(recipe)
    called = f"{trial.recipe}-tuning-{trial.rate:g}" + ("-twice" if trial.length == 2 else "")
    return Run(
        paper=paper,
        name=trial.recipe,
        recipe=tried,
        info=info.of_part(tried.data.part),
        seeds=_seeds(trials),
        seeds_per_training=1,
        folder=folder / f"{called}-{tried.hash}",
        source=None,
    )


def _measurement(
    paper: str, function: str, folder: Path, run: Run | None, given: dict[str, Any]
) -> Measurement:
    """A measurement called as its function, on a run or on nothing, in a folder."""
    decided: dict[str, Any] = {"args": {}, "device": "cpu", "datasets": (), **given}
    name = function.rpartition(":")[2]
    return Measurement(
        paper=paper,
        name=name,
        function=function,
        run=run,
        described=None,
        path=folder / "measurements" / f"{name}-{short_hash(decided)}.json",
        as_printed=False,
        **decided,
    )


def _cell(trial: Trial, score: Score) -> Cell:
    at = f" on {trial.dataset}" if trial.recipe.startswith(BASELINE) else f", rate {trial.rate:g}"
    return Cell(
        row=trial.recipe + at,
        column=COLUMNS[trial.length],
        metric="score on held-out images",
        unit="%",
        measurement=score.measurement,
        key=score.key,
        digits=2,
        exact=False,
        comparable=False,
        of_hardware=False,
        printed=None,
    )


def _seeds(trials: Sequence[Trial]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(trial.seed for trial in trials))
