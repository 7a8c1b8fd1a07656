"""A copy of the checkout has the files that git would have, also where there is no git."""

import os
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.repository import begin, files_of

KEPT = [
    *("Makefile", ".github/workflows/test.yml", "src/vitrail/models.py", "src/data/__init__.py"),
    *("configs/runs/x.yaml", "docs/README.md", "results/published/laptop/claims.csv"),
]
LEFT_OUT = [
    *(".venv/bin/python", "runs/x", "data/x", "results/laptop/x.csv", ".snakemake/x"),
    *("src/vitrail/__pycache__/models.pyc", ".ruff_cache/x", "src/vitrail.egg-info/x"),
    *("build/x", "docs/api/x.md", "docs/models.md", "audit-x/audit.csv"),
]


@pytest.mark.parametrize("repository", [False, True])
def test_what_git_ignores_is_left_out(tmp_path, repository):
    shutil.copy(ROOT / ".gitignore", tmp_path)
    for name in (*KEPT, *LEFT_OUT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "slurm").symlink_to("configs/runs")
    for name in ("data", "runs", ".snakemake"):  # may be links to another disk
        shutil.rmtree(tmp_path / name)
        (tmp_path / name).symlink_to("build")
    if repository:
        begin(tmp_path)
    assert sorted(files_of(tmp_path)) == sorted([*KEPT, ".gitignore", "slurm"])


def test_tests_find_nothing_that_a_user_has_made_or_set():
    """Neither data, runs and results, which lie in the working folder, nor settings of programs."""
    assert not [name for name in ("data", "runs", ".snakemake") if Path(name).exists()]
    assert [path.name for path in Path("results").iterdir()] == ["published"]
    assert not (Path.home() / ".bashrc").exists()
    assert not [
        name for name in os.environ if name.startswith(("MPL", "SNAKEMAKE", "SLURM", "GIT"))
    ]
