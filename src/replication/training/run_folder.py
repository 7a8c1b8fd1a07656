"""The folder of a run: its lock, its files before and after training, and the training's cost.

A file beside the lock names the process that holds it. A workflow manager that was killed and
unlocked can start a training while the first one still runs, and the user must know which to
cancel. Each start of a training is an attempt, recorded beside the checkpoints; the facts contain
the cost summed over all attempts.

``finished.json`` says that the run is finished and holds its facts: provenance, steps, cost. Only
the engine and the step that completes the training's record read it; everything else reads that
record. It stays beside the weights because Snakemake deletes the record before it starts the step
that writes it again. Without ``finished.json`` that step would have to train finished seeds again.
"""

# decides no number

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from replication.config.recipe import short_hash
from replication.config.schema import as_yaml
from replication.datasets.verify import check_layout
from replication.plan.code_digest import training_code
from replication.records.specs import WEIGHTS, record_of
from replication.training.checkpoint import Checkpoints
from replication.training.model_card import model_card
from replication.training.weights import save_weights, weights_owner
from vitrail.errors import VitrailError
from vitrail.files import Locked, atomic_path, clear_temporaries, lock, sha256, write_atomically
from vitrail.provenance import peak_memory_bytes, provenance

if TYPE_CHECKING:
    from replication.config.recipe_types import AnyRecipe
    from replication.training.dispatch import TrainingRun
    from replication.training.distributed import Team


FINISHED = "finished.json"


def read_finished(folder: Path) -> dict[str, Any] | None:
    """Return the facts of the finished run in a folder, or None if the run is not finished.

    Raises:
        VitrailError: the file is damaged.
    """
    path = folder / FINISHED
    fault = "it holds no facts of a training"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        facts, fault = None, str(error)
    if not isinstance(facts, dict) or "device" not in facts:
        raise VitrailError(
            f"cannot read {path} ({fault}); delete {folder} and run snakemake TARGET --forcerun "
            f"{record_of(folder)} to train it again"
        )
    return facts


class RunFolder:
    """The folder of one run, in which only rank 0 writes.

    Raises VitrailError if the run's dataset is not the one that the recipe names, or if the dataset
    is not below the data root.
    """

    def __init__(self, run: TrainingRun[AnyRecipe], team: Team) -> None:
        wanted, given = run.recipe.data, run.dataset
        if (given.name, given.version) != (wanted.dataset, wanted.version):
            raise VitrailError(
                f"the recipe wants dataset {wanted.dataset} version {wanted.version} and was given "
                f"{given.name} version {given.version}: correct data.dataset or data.version"
            )
        check_layout(given, run.data_root)
        self.run, self.team = run, team
        self.weights = run.folder / WEIGHTS
        self.finished = run.folder / FINISHED
        self.code = training_code(run.recipe, run.dataset).digest
        self.data = data_digest(run)
        self.checkpoints = Checkpoints(
            run.folder / "checkpoints", run.recipe.hash, run.seed, self.data, self.digest_of_start
        )
        attempts = self.checkpoints.folder / "attempts.json"
        self.attempts = Attempts(attempts, run.recipe.batch.size, run.commit, self.code)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the folder during the `with` block; yield whether the run still has to be trained.

        Raises VitrailError if the folder holds weights of another run, or weights that were trained
        from other initial weights than the present ones, or if another process trains in it.
        """
        with ExitStack() as lock:
            self.team.on_rank_zero(lambda: lock.enter_context(exclusive(self.run.folder)))
            yield not self.team.on_rank_zero(self._is_finished)

    def _is_finished(self) -> bool:
        """Return whether the run is finished already; if not, write recipe.yaml.

        A run counts as unfinished if the datasets' entries have changed since, or, with
        `run.retrain`, if the code or the initial weights have. Its checkpoints, attempts and
        finished.json are then deleted.
        """
        clear_temporaries(self.run.folder)
        if self.weights.exists():
            recipe, seed = self.run.recipe.hash, self.run.seed
            owner = weights_owner(self.weights)
            if owner != {"recipe_hash": recipe, "seed": seed}:
                raise VitrailError(
                    f"{self.weights} is of recipe {owner.get('recipe_hash')}, seed "
                    f"{owner.get('seed')}, not of recipe {recipe}, seed {seed}: delete it or train "
                    "in another folder"
                )
            if (facts := read_finished(self.run.folder)) is not None:
                by_code = facts.get("code") == self.code
                as_now = by_code and self._is_start(facts.get("initial_sha256"))
                if (as_now or not self.run.retrain) and facts.get("data") == self.data:
                    self.require_same_start(facts.get("initial_sha256"), self.weights)
                    # A process killed between writing and clearing leaves its checkpoints.
                    self.checkpoints.clear()
                    return True
                # Train from the start. Checkpoints go first: a process killed in between leaves a
                # finished run, not one that resumes from checkpoints of other code or data.
                self.checkpoints.clear()
                self.attempts.forget()
                self.finished.unlink()
        resolved = as_yaml(self.run.recipe.model_dump(mode="json"))
        write_atomically(self.run.folder / "recipe.yaml", resolved)
        return False

    def require_same_start(self, started: str | None, trained: Path) -> None:
        """Raise VitrailError if `trained` was trained from other weights than `initial` holds now.

        Args:
            started: SHA-256 of the file of initial weights, as recorded with `trained`.
            trained: weights or checkpoint, for the message.
        """
        if not self._is_start(started):
            raise VitrailError(
                f"{trained} was trained from other weights than {self.run.initial} holds now: "
                f"delete {self.run.folder} to train it again"
            )

    def _is_start(self, started: str | None) -> bool:
        """Whether a recorded SHA-256 is that of the file of weights that this run starts from.

        True also for published weights if either is None: older code recorded none, and weights of
        timm's own store have no file here.
        """
        unknown = None in (started, self.digest_of_start) and not self.run.recipe.model.weights_from
        return unknown or started == self.digest_of_start

    @cached_property
    def digest_of_start(self) -> str | None:
        """SHA-256 of the file of weights that this run starts from; None without such a file."""
        initial = self.run.initial
        return sha256(initial) if initial and initial.is_file() else None

    def finish(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Write model card, `weights` and facts of the finished run; delete its checkpoints."""
        run, device = self.run, str(self.team.device)
        self.attempts.note(steps)
        summary = self.attempts.summary()
        card = model_card(
            run.recipe,
            run.dataset,
            name=run.folder.parent.name,
            source=f"local-dir:{run.folder}",
            seed=run.seed,
            commit=summary["commit"],
        )
        write_atomically(run.folder / "README.md", card)
        save_weights(weights, self.weights, run.recipe, run.seed)
        facts = provenance(
            device,
            recipe_hash=run.recipe.hash,
            seed=run.seed,
            dataset=run.dataset.name,
            dataset_version=run.dataset.version,
            data=self.data,
            steps=steps,
            processes=self.team.world,
            peak_memory_bytes=peak_memory_bytes(device),
            initial_sha256=self.digest_of_start,
            **summary,
        )
        write_atomically(self.finished, json.dumps(facts, indent=2) + "\n")
        self.checkpoints.clear()


def data_digest(run: TrainingRun[AnyRecipe]) -> str:
    """Return the digest of the fields of datasets' entries on which a run's weights depend.

    These are the `identity_fields` of its own dataset and, if the run starts from the weights of
    another run, the digest that the other run has recorded.
    """
    initial, start = run.initial, None
    if initial is not None and run.recipe.model.weights_from:
        start = (read_finished(initial.parent) or {}).get("data")
    return short_hash([run.dataset.identity_fields, start])


UNKNOWN = "unknown"  # commit or code of an attempt that did not record it


@dataclass
class Attempt:
    """One start of a training: its first and last step, duration, commit and digest of the code."""

    started: str
    first_step: int
    last_step: int
    seconds: float
    commit: str = UNKNOWN
    code: str = UNKNOWN


class Attempts:
    """All attempts at one run; making this object begins a new attempt, the last in the list.

    Args:
        path: JSON file of the attempts; counts as empty if it cannot be read.
        images_per_step: images of a step over all processes, for the mean speed.
        commit: commit of the code that trains; None outside of a repository.
        code: digest of the code that trains.
    """

    def __init__(self, path: Path, images_per_step: int, commit: str | None, code: str) -> None:
        self._path, self._images_per_step = path, images_per_step
        self._start = time.monotonic()
        try:
            before = [Attempt(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            before = []
        self._all = [*before, Attempt(now(), 0, 0, 0.0, commit or UNKNOWN, code)]

    def forget(self) -> None:
        """Remove the earlier attempts: the present one trains the run from the start."""
        del self._all[:-1]

    def begin(self, step: int) -> None:
        """Record the step from which the present attempt starts."""
        self._all[-1].first_step = step
        self.note(step)

    def note(self, step: int) -> None:
        """Record that the present attempt has reached `step`, and the seconds that it has taken."""
        self._all[-1].last_step = step
        self._all[-1].seconds = round(time.monotonic() - self._start, 3)
        text = json.dumps([asdict(attempt) for attempt in self._all])
        # Not durable: waiting for the disk at each entry of the log would cost time.
        with atomic_path(self._path, durable=False) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def summary(self) -> dict[str, Any]:
        """Return the cost of the run so far, summed over all attempts.

        Different values of `commit` and `code` are joined by "+", in the order of the attempts.
        ``steps_repeated`` counts steps that were trained again because no checkpoint held them.
        """
        seconds = sum(attempt.seconds for attempt in self._all)
        steps = sum(attempt.last_step - attempt.first_step for attempt in self._all)
        return {
            "commit": "+".join(dict.fromkeys(attempt.commit for attempt in self._all)),
            "code": "+".join(dict.fromkeys(attempt.code for attempt in self._all)),
            "started": self._all[0].started,
            "finished": now(),
            "attempts": len(self._all),
            "interruptions": len(self._all) - 1,
            "wall_seconds": round(seconds, 3),
            "steps_repeated": steps - self._all[-1].last_step,
            "images_per_second": round(steps * self._images_per_step / seconds, 1) if steps else 0,
        }


def now() -> str:
    """Return the present time, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock the run folder during the `with` block; make it if it does not exist.

    Raises VitrailError if another process holds the lock, or the folder cannot be written or
    locked.
    """
    note, slurm = folder / ".lock-holder", os.environ.get("SLURM_JOB_ID")
    myself = f"process {os.getpid()} on {socket.gethostname()}"
    with ExitStack() as held:
        try:
            held.enter_context(lock(folder / ".lock"))
        except Locked:
            holder = ""  # stays empty if the holder has not written its name yet, or has ended
            with suppress(OSError):
                holder = note.read_text(encoding="utf-8")
            raise VitrailError(
                f"{folder} is being trained by {holder or 'another process'}: wait for it to end, "
                "or cancel it and start again"
            ) from None
        write_atomically(note, f"SLURM job {slurm} ({myself})" if slurm else myself)
        held.callback(note.unlink, missing_ok=True)
        yield
