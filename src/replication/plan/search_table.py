"""The table of a paper's searches at a scale: trials as ordinary runs, judged on held-out images.

Its target is ``<paper>_search``. The column of twice the steps gets numbers once the best rate of a
recipe is in ``searched.csv``, which ``vitrail search`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from replication.config.paper import ShownColumn
from replication.config.recipe import short_hash
from replication.config.tuning import BASELINE
from replication.records.specs import Artifact, Cell, Measurement, Run

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.recipe import Training
    from replication.config.tuning import Trial
    from replication.plan.resolve import PaperAtScale

SEARCH = "search"
COLUMNS = {1: "Score", 2: "Score with twice the steps"}
PIXEL_BASELINES = "replication.measures.pixel_baselines:pixel_baselines"


class Score(NamedTuple):
    """The place of a trial's score: the value `key` of a measurement under the trial's seed."""

    measurement: Measurement
    key: str


def search_table(
    paper: PaperAtScale, scores: dict[Trial, Score], label: str, config: tuple[str, ...]
) -> Artifact | None:
    """Return the table of a paper's searches at its scale; None if it searches nothing.

    `label` is the name of the scale that artifacts show; `config` are its --config settings.
    """
    if not scores:
        return None
    read = {trial.dataset for trial in scores}
    seeds: dict[Trial, list[Score]] = {}
    for trial, score in scores.items():
        seeds.setdefault(trial._replace(seed=0), []).append(score)
    cells = {trial: _cell(trial, own) for trial, own in seeds.items()}
    return Artifact(
        scale=label,
        config=config,
        paper=paper.folder.name,
        name=SEARCH,
        kind="table",
        title="Learning rates tried on held-out images",
        caption="Every fifth training image is held out, and the others train. Test images are "
        "not opened.",
        source=f"searches of {paper.folder.name} at this scale",
        note="",
        row_header="Recipe and learning rate",
        rows=tuple(dict.fromkeys(cell.row for cell in cells.values())),
        columns=tuple(ShownColumn(label=label) for label in COLUMNS.values()),
        cells=tuple(cells.values()),
        measurements=tuple(dict.fromkeys(cell.records for cell in cells.values())),
        draw=None,
        digits=2,
        stand_ins={here: own for here, own in paper.names_replaced.items() if here in read},
    )


def trial_scores(paper: PaperAtScale, runs_root: Path) -> dict[Trial, Score]:
    """Return the trials of a paper's searches at its scale, each with the place of its score.

    Raises:
        VitrailError: a recipe that is searched is not valid, or starts from another's weights.
    """
    called, searches = paper.folder.name, paper.searches
    folder = runs_root / called
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
            for trial in trials:
                run = _run(called, trial, recipe, info, folder)
                given: dict[str, Any] = {"seed": run.seed, "device": paper.scale.device, "run": run}
                score = _measurement(called, recipe.score[0], run.home, given)
                found[trial] = Score(score, recipe.score[1])
        for trial in searches.baseline_trials(info):
            given = {"args": {"part": "tuning"}, "seed": trial.seed, "datasets": (info,)}
            pixels = _measurement(called, PIXEL_BASELINES, folder, given)
            found[trial] = Score(pixels, trial.recipe.removeprefix(BASELINE))
    return found


def _run(paper: str, trial: Trial, recipe: Training, info: DatasetInfo, folder: Path) -> Run:
    """Return the run of a trial; its folder lies in `folder`."""
    tried: Any = trial.of(recipe)
    called = f"{trial.recipe}-tuning-{trial.rate:g}" + ("-twice" if trial.length == 2 else "")
    return Run(
        paper=paper,
        name=trial.recipe,
        recipe=tried,
        dataset=info.of_part(tried.data.part),
        seed=trial.seed,
        home=folder / f"{called}-{tried.hash}",
    )


def _measurement(paper: str, function: str, folder: Path, given: dict[str, Any]) -> Measurement:
    """Return a measurement named after its function; its record lies in `folder`."""
    fields: dict[str, Any] = {"args": {}, "device": "cpu", "datasets": (), **given}
    names = [info.name for info in fields["datasets"]]
    decided = {"args": fields["args"], "device": fields["device"], "datasets": names}
    name, seed = function.rpartition(":")[2], fields["seed"]
    path = folder / "measurements" / f"{name}-seed{seed}-{short_hash(decided)}.json"
    return Measurement(paper=paper, name=name, function=function, path=path, **fields)


def _cell(trial: Trial, scores: Sequence[Score]) -> Cell:
    at = f" on {trial.dataset}" if trial.recipe.startswith(BASELINE) else f", rate {trial.rate:g}"
    return Cell(
        row=trial.recipe + at,
        column=COLUMNS[trial.length],
        metric="score on held-out images",
        unit="%",
        records=tuple(score.measurement.path for score in scores),
        key=scores[0].key,
        digits=2,
        exact=False,
        comparable=False,
        of_hardware=False,
        printed=None,
    )
