"""``vitrail search``: learning rates tried on held-out training images, into ``searched.csv``."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replication.cli.options import Data, Scale, open_catalog
from vitrail.commands import say
from vitrail.commands.app import command
from vitrail.errors import VitrailError

if TYPE_CHECKING:
    from replication.config.datasets import DatasetInfo
    from replication.config.tuning import Score, Trial
    from replication.plan.catalog import Paper

    Found = dict[Trial, Score]
    Work = Callable[[], Found]


@command()
def search(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="A folder of configs/papers/.")],
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPES", help="Searched recipes.", show_default="all of the scale"
        ),
    ] = None,
    scale: Scale = None,
    data: Data = None,
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trainings at a time, each on one thread.")
    ] = 1,
) -> None:
    """Search the learning rates that a scale's `searches` name.

    Each recipe is trained on four fifths of its training images at each rate, and at the best for
    twice as long; the rest of them judge it. Trials that configs/papers/PAPER/searched.csv has are
    not repeated.

    \b
    vitrail search octic
    vitrail search shift swin_t-cifar10-circular --jobs 2
    """
    catalog = open_catalog(scale, data=data)
    about = catalog.paper(paper)
    known = [name for group in about.searches.groups for name in group.of]
    if not known:
        raise VitrailError(
            f"scale '{catalog.scale.name}' of '{paper}' has no searches; name the recipes under "
            f"searches: in {about.folder}/scales/{catalog.scale.name}.yaml"
        )
    for name in recipes or ():
        if name not in known:
            raise VitrailError(
                f"recipe '{name}' is not searched at scale '{catalog.scale.name}' of '{paper}'; "
                f"choose of {', '.join(known)}"
            )
    chosen = recipes or known
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the workers
    with _processes(jobs) as pool:
        for due in (floors_due, rates_due, longer_due):  # the last ones need what the others find
            catalog = open_catalog(scale, data=data)
            works = list(due(catalog.paper(paper), chosen, catalog.data_root))
            _work(pool, works, about.searched_path)


def floors_due(paper: Paper, recipes: Iterable[str], data_root: Path) -> Iterator[Work]:
    """The rules without a network that were not yet judged on the datasets of some recipes."""
    from replication.config.tuning import FLOORS, world_of
    from replication.jobs.trials import take_floors

    searches = paper.searches
    known = {
        (trial.setting, trial.seed) for trial in searches.found if trial.recipe.startswith(FLOORS)
    }
    worlds: dict[tuple[str, int], DatasetInfo] = {}
    for name in recipes:
        _, info = paper.searched(name)
        worlds |= {(world_of(info), seed): info for seed in searches.own(name).drawn}
    for (setting, seed), info in worlds.items():
        if (setting, seed) not in known:
            yield partial(take_floors, info, seed, data_root)


def rates_due(paper: Paper, recipes: Iterable[str], data_root: Path) -> Iterator[Work]:
    """The trials of some recipes at the rates of their grids that were not yet taken."""
    for name in recipes:
        recipe, info = paper.searched(name)
        trials = paper.searches.trials(name, recipe, info).values()
        yield from _due(paper, itertools.chain(*trials), data_root)


def longer_due(paper: Paper, recipes: Iterable[str], data_root: Path) -> Iterator[Work]:
    """The trials of some recipes at their best rate, twice as long, that were not yet taken."""
    for name in recipes:
        recipe, info = paper.searched(name)
        trials = paper.searches.longer_trials(name, recipe, info)
        yield from _due(paper, trials, data_root)


def _due(paper: Paper, trials: Iterable[Trial], data_root: Path) -> Iterator[Work]:
    from replication.jobs.trials import take_trial

    for trial in trials:
        if trial not in paper.searches.found:
            yield partial(take_trial, trial, *paper.searched(trial.recipe), data_root)


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Start so many processes; where the block fails or is stopped, they and their work end."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
                process.join()
            raise


def _work(pool: ProcessPoolExecutor, works: Sequence[Work], searched: Path) -> None:
    """Let a pool do some work, and add each result to ``searched.csv`` when it is there.

    Raises:
        VitrailError: a process of the pool was killed.
    """
    from replication.config.tuning import add_found

    for done in as_completed([pool.submit(work) for work in works]):
        try:
            found = done.result()
        except BrokenProcessPool:
            raise VitrailError(
                "a process of the search was killed, maybe for want of memory; give the command "
                "again, with fewer --jobs: trials that are done are not repeated"
            ) from None
        for trial, score in found.items():
            add_found(searched, trial, score)
            what = f"{trial.recipe} on {trial.dataset}, rate {trial.rate:g}, seed {trial.seed}"
            say(f"{what}: {score.held_out:.2f} % ({score.cpu_seconds:.0f} s)")
