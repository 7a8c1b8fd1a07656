"""A throw-away copy of the checkout, for tests that run the graph for real."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import snakemake.cli

from tests.conftest import ROOT


class Checkout:
    """A throw-away copy of the tracked files, and those that git does not ignore."""

    def __init__(self, path):
        self.path = path
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
        for name in filter(None, files.stdout.split("\0")):
            source, target = ROOT / name, path / name
            if source.exists() or source.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    @contextmanager
    def changed(self, name, change):
        """Change the text of a file by a function while the block runs."""
        path = self.path / name
        before = path.read_text()
        after = change(before)
        assert after != before
        path.write_text(after)
        try:
            yield
        finally:
            path.write_text(before)

    def snakemake(self, *arguments):
        """Run Snakemake there, on its own copy of the package."""
        arguments = ["--cores", "2", "--nocolor", *arguments]
        if sys.platform == "linux":
            return self._fork(arguments)
        environment = {**os.environ, "PYTHONPATH": str(self.path / "src")}
        return subprocess.run(
            [sys.executable, "-m", "snakemake", *arguments],
            cwd=self.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def _fork(self, arguments):
        """As `snakemake`, in a fork of this process, which imports Snakemake once for all runs."""
        with TemporaryDirectory() as folder:
            said = [Path(folder) / name for name in ("out", "err")]
            process = get_context("fork").Process(target=self._run, args=(arguments, *said))
            process.start()
            process.join()
            out, err = (file.read_text() for file in said)
            return SimpleNamespace(returncode=process.exitcode, stdout=out, stderr=err)

    def _run(self, arguments, out, err):
        """Be ``python -m snakemake`` there, as if nothing of ours were imported yet."""
        for descriptor, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        source = str(self.path / "src")
        os.chdir(self.path)
        os.environ["PYTHONPATH"] = source
        sys.path[:0] = [str(self.path), source]
        for name, module in [*sys.modules.items()]:
            if str(getattr(module, "__file__", None)).startswith(str(ROOT / "src")):
                del sys.modules[name]
        sys.argv = ["snakemake", *arguments]
        snakemake.cli.main(arguments)

    def planned(self, *arguments):
        """The jobs of a dry run: rule names, and their counts."""
        done = self.snakemake("-n", *arguments)
        assert done.returncode == 0, done.stderr
        return self.counts(done.stdout + done.stderr)

    @staticmethod
    def counts(text):
        """Read Snakemake's table of job counts."""
        rows = [line.split() for line in text.rpartition("Job stats:")[2].splitlines()]
        return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
