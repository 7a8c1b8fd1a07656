"""``vitrine publish``: results become the committed ones, if a clean commit made every number.

The rule: the tracked files are unchanged (the published results themselves excepted), and each
number was measured at a clean commit whose code is that of HEAD: HEAD itself, or an ancestor since
which nothing under src/, configs/, workflow/ and envs/ has changed. So a correction of a README
does not ask for a new measurement, and a change of a recipe does.
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
from vitrine.catalog import Catalog
from vitrine.commands.console import count, say
from vitrine.commands.results import published_folder
from vitrine.commands.state import is_rendered
from vitrine.errors import VitrineError

CODE = ("src", "configs", "workflow", "envs")
DIRTY = "-dirty"


def publish(catalog: Catalog) -> None:
    """Copy a scale's results into the folder of published ones, in place of what is there.

    Raises:
        VitrineError: the working tree is not clean, or a number comes from other code.
    """
    folder = published_folder(catalog)
    git = Git(catalog.root)
    if changed := git.changed_file(besides=folder.parent):
        raise VitrineError(f"{changed} differs from the last commit; commit or restore it first")
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
        """A tracked file outside `besides` that differs from the last commit, None if none does.

        Raises:
            VitrineError: this is no git repository with a commit.
        """
        if self._ask("rev-parse", "HEAD") is None:
            raise VitrineError(
                f"{self.root.absolute()} is no git repository with a commit; publish from a clone"
            )
        arguments = ["--porcelain", "--untracked-files=no", "--", ".", f":(exclude){besides}"]
        status = self._ask("status", *arguments) or ""
        return status.splitlines()[0][3:] if status else None

    @functools.cache  # noqa: B019 - each lives as long as its command
    def fault_of(self, commit: str) -> str | None:
        """Why a number measured at `commit` may not be published, None if it may."""
        if not commit:
            return "it does not say at which commit it was measured"
        if commit.endswith(DIRTY):
            return f"it was measured at {commit}, with uncommitted changes"
        if self._ask("merge-base", "--is-ancestor", commit, "HEAD") is None:
            return f"its commit {commit} is no ancestor of HEAD"
        changed = self._ask("diff", "--name-only", commit, "HEAD", "--", *CODE)
        if changed:
            return f"since its commit {commit} {changed.splitlines()[0]} has changed"
        return None

    def _ask(self, *arguments: str) -> str | None:
        """Git's answer, None where it exits with an error."""
        try:
            answer = subprocess.run(
                ["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return answer.stdout.rstrip("\n")
