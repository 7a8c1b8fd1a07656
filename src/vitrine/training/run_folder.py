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
from vitrine.provenance import peak_memory_bytes, provenance, read_provenance
from vitrine.training.attempts import Attempts
from vitrine.training.checkpoint import Checkpoints
from vitrine.training.lock import exclusive
from vitrine.training.model import save_weights, weights_owner
from vitrine.training.team import Team

if TYPE_CHECKING:
    from vitrine.plan.datasets import DatasetInfo
    from vitrine.plan.recipe import AnyRecipe


class RunFolder:
    """One run in its folder, where only the team's lead writes.

    Args:
        recipe: what is trained.
        seed: decides all randomness.
        folder: gets recipe.yaml, log.jsonl, weights.safetensors and provenance.json.
        info: the recipe's dataset.
        initial: file of the weights that training starts from, None where the seed decides them.
        team: the processes that train.

    Raises:
        VitrineError: the recipe wants another dataset.
    """

    def __init__(
        self,
        recipe: AnyRecipe,
        seed: int,
        folder: Path,
        info: DatasetInfo,
        initial: Path | None,
        team: Team,
    ) -> None:
        if (info.name, info.version) != (recipe.data.dataset, recipe.data.version):
            raise VitrineError(
                f"the recipe wants dataset {recipe.data.dataset} version {recipe.data.version} and "
                f"was given {info.name} version {info.version}: correct data.dataset or "
                "data.version"
            )
        self.recipe, self.seed, self.folder, self.info, self.team = recipe, seed, folder, info, team
        self.initial = initial
        self.weights = folder / "weights.safetensors"
        self.provenance = folder / "provenance.json"
        self.checkpoints = Checkpoints(folder / "checkpoints", recipe.hash, seed)
        self.attempts = Attempts(folder / "checkpoints" / "attempts.json", recipe.batch.size)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Lock the folder while the block runs; give it whether there is anything to train.

        Raises:
            VitrineError: the folder holds weights of another run, or such as were trained from
                others than it starts from now; or another process trains in it.
        """
        with ExitStack() as lock:
            self.team.from_lead(lambda: lock.enter_context(exclusive(self.folder)))
            yield not self.team.from_lead(self._is_finished)

    def _is_finished(self) -> bool:
        """Return whether the run is finished already; if not, note its recipe."""
        clear_temporaries(self.folder)
        if self.weights.exists():
            owner = weights_owner(self.weights)
            if owner != {"recipe_hash": self.recipe.hash, "seed": self.seed}:
                raise VitrineError(
                    f"{self.weights} is of recipe {owner.get('recipe_hash')}, seed "
                    f"{owner.get('seed')}, not of recipe {self.recipe.hash}, seed {self.seed}: "
                    "delete it or train in another folder"
                )
            if self.provenance.exists():
                started = (read_provenance(self.folder) or {}).get("initial_sha256")
                self.require_same_start(started, self.weights)
                self.checkpoints.clear()  # a kill may have come between writing and clearing
                return True
        resolved = yaml.safe_dump(self.recipe.model_dump(mode="json"), sort_keys=False)
        write_atomically(self.folder / "recipe.yaml", resolved)
        return False

    def require_same_start(self, started: str | None, trained: Path) -> None:
        """Refuse what was trained from weights that another training has replaced since."""
        if started != self.digest_of_start:
            raise VitrineError(
                f"{trained} was trained from other weights than {self.initial} holds now: "
                f"delete {self.folder} to train it again"
            )

    @cached_property
    def digest_of_start(self) -> str | None:
        """The digest of the weights of another run that this one starts from, if it does."""
        return sha256(self.initial) if self.initial and self.recipe.model.weights_from else None

    def finish(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Write the results, then drop the checkpoints, which they make worthless."""
        self.attempts.note(steps)
        save_weights(weights, self.weights, self.recipe, self.seed)
        origin = provenance(
            str(self.team.device),
            recipe_hash=self.recipe.hash,
            seed=self.seed,
            dataset=self.info.name,
            dataset_version=self.info.version,
            steps=steps,
            processes=self.team.world,
            peak_memory_bytes=peak_memory_bytes(str(self.team.device)),
            initial_sha256=self.digest_of_start,
            **self.attempts.summary(),
        )
        write_atomically(self.provenance, json.dumps(origin, indent=2) + "\n")
        self.checkpoints.clear()
