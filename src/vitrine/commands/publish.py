"""``vitrine publish``: results become the committed ones, if a clean commit made every number.

The rule: no file is changed or new (the published results and what git ignores excepted), and each
number was measured, on weights that were trained, at a clean commit whose code is that of HEAD:
HEAD itself, or an ancestor since which nothing under src/, configs/, workflow/ and envs/ has
changed. So a correction of a README does not ask for a new measurement, and a change of a recipe
does.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from vitrine.artifacts.comparison import read_cells
from vitrine.commands.console import count, say
from vitrine.commands.results import published_folder
from vitrine.commands.state import is_rendered
from vitrine.errors import VitrineError
from vitrine.plan.catalog import Artifact, Catalog, with_sources
from vitrine.provenance import read_provenance

CODE = ("src", "configs", "workflow", "envs")
DIRTY = "-dirty"


def publish(catalog: Catalog) -> None:
    """Copy a scale's results into the folder of published ones, in place of what is there.

    Raises:
        VitrineError: the working tree is not clean, or a number or the weights behind it come from
            other code.
    """
    folder = published_folder(catalog)
    git = Git(catalog.root)
    if changed := git.changed_file(besides=folder.parent):
        raise VitrineError(
            f"{changed} differs from the last commit or is not in it; commit, restore or remove it "
            "first"
        )
    built = [artifact for artifact in catalog.artifacts if is_rendered(artifact, catalog)]
    if not built:
        raise VitrineError(
            f"{catalog.results} has nothing to publish; run snakemake all --config "
            f"scale={catalog.scale.name} first"
        )
    not_run = {}
    for artifact in built:
        path = catalog.files(artifact)[0]
        cells = read_cells(path)
        require_code_of_head(cells, path, git)
        require_weights_of_head(artifact, cells, git)
        not_run[f"{artifact.paper}_{artifact.name}"] = int((cells["verdict"] == "not_run").sum())
    files = [file for artifact in built for file in catalog.files(artifact)]
    files += [catalog.report] if catalog.report.is_file() else []
    stale = replace_folder(folder, catalog.results, files)

    say(f"{count(len(files), 'file')} of {count(len(built), 'artifact')} are now in {folder}/.")
    for name, cells_not_run in not_run.items():
        if cells_not_run:
            say(f"{name}: {count(cells_not_run, 'cell')} not run.")
    for artifact in catalog.artifacts:
        if artifact not in built:
            say(f"{artifact.paper}_{artifact.name}: not built, so not published.")
    for path in stale:
        say(f"Removed {folder / path}, which no longer belongs to this scale's results.")
    say(f"Now: git add {folder} && git commit")


def require_code_of_head(cells: pd.DataFrame, path: Path, git: Git) -> None:
    """Refuse a number that was not measured by the code of HEAD.

    Raises:
        VitrineError: it names the file and the row.
    """
    for cell in cells[cells["verdict"] != "not_run"].itertuples():
        if fault := git.fault_of(str(cell.commit)):
            raise VitrineError(
                f"{path}, row '{cell.row}', column '{cell.column}': {fault}; measure it again"
            )


def require_weights_of_head(artifact: Artifact, cells: pd.DataFrame, git: Git) -> None:
    """Refuse a number measured on a run of which a seed was not trained by the code of HEAD.

    Raises:
        VitrineError: it names the folder of the run.
    """
    name = f"{artifact.paper}_{artifact.name}"
    run_cells = cells[cells["verdict"] != "not_run"]
    measured = {(cell.row, cell.column): str(cell.recipe_hash) for cell in run_cells.itertuples()}
    known = {one.on.recipe.hash for one in artifact.measurements if one.on}
    for recipe_hash in sorted(set(measured.values()) - {"", *known}):
        raise VitrineError(
            f"{name} was measured on recipe {recipe_hash}, which nothing behind it has any more; "
            f"run snakemake {name}"
        )
    runs = [
        run
        for cell in artifact.cells
        if (run := cell.measurement.run if cell.measurement else None)
        and measured.get((cell.row, cell.column)) == run.recipe.hash
    ]
    for run in with_sources(runs):
        for seed in run.seeds:
            folder = run.seed_folder(seed)
            if (facts := read_provenance(folder)) is None:
                raise VitrineError(
                    f"{folder} has no provenance.json, and {name} was measured on it; delete "
                    f"{run.folder} and train again"
                )
            if fault := git.fault_of(str(facts.get("commit") or "")):
                raise VitrineError(f"{folder}: {fault}; delete {run.folder} and train again")


def replace_folder(folder: Path, source: Path, files: list[Path]) -> list[Path]:
    """Make `folder` hold exactly `files` of `source`, in one rename.

    Returns:
        What it held before and no longer holds, relative to it.

    Raises:
        VitrineError: it cannot be written.
    """
    new = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    kept = {file.relative_to(source) for file in files}
    held = {file.relative_to(folder) for file in folder.rglob("*") if file.is_file()}
    try:
        for name in kept:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, new / name)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except OSError as error:
        if old.exists():
            old.rename(folder)
        raise VitrineError(
            f"cannot write {folder}: {error.strerror or error}; make room or correct the "
            "permissions"
        ) from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    return sorted(held - kept)


@dataclass(frozen=True, eq=False)  # each its own, so that no answer outlives its command
class Git:
    """What publishing asks of the repository at `root`."""

    root: Path

    def changed_file(self, besides: Path) -> str | None:
        """A changed or new file outside `besides`, ignored ones excepted, None if there is none.

        Raises:
            VitrineError: this is no git repository with a commit, or git fails.
        """
        if self._run("rev-parse", "--verify", "HEAD").returncode:
            raise VitrineError(
                f"{self.root.absolute()} is no git repository with a commit; publish from a clone"
            )
        paths = ["."]
        top = Path(self._ask("rev-parse", "--show-toplevel")).resolve()
        # Git takes no path outside of its repository, not even to leave it out.
        if (folder := (self.root / besides).resolve()).is_relative_to(top):
            paths.append(f":(top,exclude,literal){folder.relative_to(top)}")
        status = self._ask("status", "--porcelain", "--untracked-files=all", "--", *paths)
        return status.splitlines()[0][3:] if status else None

    @functools.cache  # noqa: B019 - each lives as long as its command
    def fault_of(self, commits: str) -> str | None:
        """Why what was made at `commits`, joined by "+", may not be published, None if it may.

        Raises:
            VitrineError: git fails.
        """
        faults = map(self._fault_of_one, commits.split("+"))
        return next(filter(None, faults), None)

    def _fault_of_one(self, commit: str) -> str | None:
        if not commit:
            return "it does not say at which commit it was made"
        if commit.endswith(DIRTY):
            return f"it was made at {commit}, with uncommitted changes"
        if self._run("merge-base", "--is-ancestor", commit, "HEAD").returncode:
            return f"its commit {commit} is no ancestor of HEAD"
        changed = self._ask("diff", "--name-only", commit, "HEAD", "--", *CODE)
        if changed:
            return f"since its commit {commit} {changed.splitlines()[0]} has changed"
        return None

    def _ask(self, *arguments: str) -> str:
        """Git's answer.

        Raises:
            VitrineError: git exits with an error.
        """
        done = self._run(*arguments)
        if done.returncode:
            reason = done.stderr.strip().partition("\n")[0]
            raise VitrineError(
                f"git {arguments[0]} failed in {self.root.absolute()} ({reason}); put that right "
                "and publish again"
            )
        return done.stdout.rstrip("\n")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["git", *arguments]
        try:
            return subprocess.run(
                command, cwd=self.root, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise VitrineError(f"git cannot be started ({error.strerror}); install it") from None
