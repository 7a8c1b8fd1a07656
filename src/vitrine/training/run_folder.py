"""The folder of a run: what lies in it when training begins, goes on and has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from torch import Tensor

from vitrine.errors import VitrineError
from vitrine.files import clear_temporaries, sha256, write_atomically
from vitrine.plan.code import training_digest
from vitrine.provenance import commit, peak_memory_bytes, provenance, read_provenance
from vitrine.training.attempts import Attempts
from vitrine.training.checkpoint import Checkpoints
from vitrine.training.lock import exclusive
from vitrine.training.model import save_weights, weights_owner
from vitrine.training.team import Team

if TYPE_CHECKING:
    from vitrine.plan.recipe import AnyRecipe
    from vitrine.training.engine import Job


class RunFolder:
    """One run in its folder, where only the team's lead writes.

    Args:
        job: the run to train.
        team: the processes that train.

    Raises:
        VitrineError: the recipe wants another dataset.
    """

    def __init__(self, job: Job[AnyRecipe], team: Team) -> None:
        wanted, given = job.recipe.data, job.dataset
        if (given.name, given.version) != (wanted.dataset, wanted.version):
            raise VitrineError(
                f"the recipe wants dataset {wanted.dataset} version {wanted.version} and was given "
                f"{given.name} version {given.version}: correct data.dataset or data.version"
            )
        self.job, self.team = job, team
        self.weights = job.folder / "weights.safetensors"
        self.provenance = job.folder / "provenance.json"
        self.code = training_digest(job.recipe, job.dataset)
        checkpoints = job.folder / "checkpoints"
        self.checkpoints = Checkpoints(checkpoints, job.recipe.hash, job.seed)
        self.attempts = Attempts(
            checkpoints / "attempts.json", job.recipe.batch.size, commit(), self.code
        )

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the folder while the block runs; give it whether there is anything to train.

        Raises:
            VitrineError: the folder holds weights of another run, or such as were trained from
                others than it starts from now; or another process trains in it.
        """
        with ExitStack() as lock:
            self.team.from_lead(lambda: lock.enter_context(exclusive(self.job.folder)))
            yield not self.team.from_lead(self._is_finished)

    def _is_finished(self) -> bool:
        """Return whether the run is finished already; if not, note its recipe."""
        clear_temporaries(self.job.folder)
        if self.weights.exists():
            recipe, seed = self.job.recipe.hash, self.job.seed
            owner = weights_owner(self.weights)
            if owner != {"recipe_hash": recipe, "seed": seed}:
                raise VitrineError(
                    f"{self.weights} is of recipe {owner.get('recipe_hash')}, seed "
                    f"{owner.get('seed')}, not of recipe {recipe}, seed {seed}: delete it or train "
                    "in another folder"
                )
            facts = read_provenance(self.job.folder)
            if facts is not None and not (self.job.retrain and facts.get("code") != self.code):
                self.require_same_start(facts.get("initial_sha256"), self.weights)
                self.checkpoints.clear()  # a kill may have come between writing and clearing
                return True
            self.provenance.unlink(missing_ok=True)  # what it is about begins anew
        resolved = yaml.safe_dump(self.job.recipe.model_dump(mode="json"), sort_keys=False)
        write_atomically(self.job.folder / "recipe.yaml", resolved)
        return False

    def require_same_start(self, started: str | None, trained: Path) -> None:
        """Refuse what was trained from weights that another training has replaced since."""
        if started != self.digest_of_start:
            raise VitrineError(
                f"{trained} was trained from other weights than {self.job.initial} holds now: "
                f"delete {self.job.folder} to train it again"
            )

    @cached_property
    def digest_of_start(self) -> str | None:
        """The digest of the weights of another run that this one starts from, if it does."""
        initial = self.job.initial
        return sha256(initial) if initial and self.job.recipe.model.weights_from else None

    def finish(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Write the results, then drop the checkpoints, which they make worthless."""
        self.attempts.note(steps)
        save_weights(weights, self.weights, self.job.recipe, self.job.seed)
        origin = provenance(
            str(self.team.device),
            recipe_hash=self.job.recipe.hash,
            seed=self.job.seed,
            dataset=self.job.dataset.name,
            dataset_version=self.job.dataset.version,
            steps=steps,
            processes=self.team.world,
            peak_memory_bytes=peak_memory_bytes(str(self.team.device)),
            initial_sha256=self.digest_of_start,
            **self.attempts.summary(),
        )
        write_atomically(self.provenance, json.dumps(origin, indent=2) + "\n")
        self.checkpoints.clear()
