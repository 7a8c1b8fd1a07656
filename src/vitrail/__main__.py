"""``vitrail COMMAND``, which is also ``python -m vitrail COMMAND``: the one command line.

The library's commands are about one model. In a checkout the package `replication` lies beside the
library, and its commands are there, too. Each command is a function with its options, in a module
of `vitrail.commands` or `replication.cli`. A command imports torch, pandas and the plan only when
it runs, so that help, shell completion and the steps that need none of them start at once.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from pathlib import Path

from vitrail.errors import exit_on_error

PACKAGES = ["vitrail.commands"]
if (Path(__file__).parents[1] / "replication").is_dir():
    PACKAGES.append("replication.cli")


def main() -> None:
    """Run the command of `sys.argv`, in a child of the fork server where one was started."""
    if "replication.cli" in PACKAGES:
        import_module("replication.jobs.fork_server").run_in_server()
    exit_on_error(run)


def forbid_code_in_weights() -> None:
    """Restrict every `torch.load` of this process and its children to ``weights_only=True``.

    The library's own calls already pass this option. mmengine passes ``weights_only=False`` after a
    load with the option has failed, and downloads by timm and torch.hub may pass it, too. Only the
    process of a command is restricted: a user who imports the library may load files in any way.
    """
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)  # torch refuses both at once
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"


def run() -> None:
    """Run the command of `sys.argv` in this process, and exit with its status.

    Raises:
        VitrailError: as the command does.
        ModuleNotFoundError: typer, or a package that the command needs, is not installed.
    """
    from vitrail.commands.app import app
    from vitrail.files import shorten_socket_paths

    shorten_socket_paths()
    forbid_code_in_weights()
    # The encoding of the output may lack letters of a name. A process whose parent has run this
    # before the fork has the setting already; setting it again would fail if the output is now a
    # pipe.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    # A notebook sets its own backend, which matplotlib may not find here; our figures need none.
    os.environ.pop("MPLBACKEND", None)
    for package in PACKAGES:
        for name in import_module(package).MODULES:
            import_module(f"{package}.{name}")
    # Tables write "- " before a row that is not the paper's; typer would take it for an option.
    app([argument.removeprefix("- ") for argument in sys.argv[1:]], prog_name="vitrail")


if __name__ == "__main__":
    main()
