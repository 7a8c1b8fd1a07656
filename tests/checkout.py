"""A throw-away copy of the checkout, for tests that run the graph for real."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from tests.conftest import ROOT
from tests.repository import files_of


@functools.cache
def _server():
    """The process that all commands of checkouts in this process are forked from."""
    command = [sys.executable, str(Path(__file__).with_name("command_server.py"))]
    pipe = subprocess.PIPE
    server = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
    atexit.register(server.stdin.close)
    return server


def _ask(**request):
    """Let the server run a command; the exit status is returned."""
    server = _server()
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


class Checkout:
    """A throw-away copy of the tracked files, and those that git does not ignore."""

    def __init__(self, path):
        self.path = path
        for name in files_of(ROOT):
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
        return self._run("snakemake", "--cores", "2", "--nocolor", *arguments)

    def vitrail(self, *arguments):
        """Run ``vitrail`` there, on its own copy of the package."""
        return self._run("vitrail", *arguments)

    def _run(self, module, *arguments):
        with TemporaryDirectory() as folder:
            said = {name: str(Path(folder) / name) for name in ("out", "err")}
            code = _ask(
                module=module,
                arguments=arguments,
                folder=str(self.path),
                environment={**os.environ, "PYTHONPATH": str(self.path / "src")},
                **said,
            )
            out, err = (Path(file).read_text() for file in said.values())
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

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
