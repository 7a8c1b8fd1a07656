"""What the SLURM of this machine answers."""

from __future__ import annotations

import getpass
import math
import re
import shutil
import subprocess

SECONDS = 10  # to wait for an answer
LIMIT = re.compile(
    r"^PartitionName=(\S+) .*?\bMaxTime=(?:UNLIMITED|(?:(\d+)-)?(\d+):(\d+):\d+)", re.MULTILINE
)
"""Matches a partition of ``scontrol --oneliner show partition``: name, days, hours, minutes."""


def controller() -> tuple[bool, str]:
    """Whether a SLURM controller answers, and what to say about it."""
    if shutil.which("sbatch") is None:
        return False, "no client (sbatch is not on the PATH)"
    answer = _ask("scontrol", "ping")
    if answer is None:
        return False, "client present, controller does not answer"
    if "UP" not in answer:
        return False, "client present, controller down"
    return True, "controller up"


def time_limits() -> dict[str, float]:
    """Return the time limit in minutes of each partition; {} without an answer."""
    shown = _ask("scontrol", "--all", "--oneliner", "show", "partition") or ""
    return {
        name: (int(days or 0) * 24 + int(hours)) * 60 + int(minutes) if hours else math.inf
        for name, days, hours, minutes in LIMIT.findall(shown)
    }


def accounts() -> set[str]:
    """Return the names, in lower case, of the user's accounts; empty without an answer."""
    user = f"user={getpass.getuser()}"
    shown = _ask(
        "sacctmgr", "--noheader", "--parsable2", "show", "associations", user, "format=account"
    )
    return {line.strip().lower() for line in (shown or "").splitlines()} - {""}


def _ask(*command: str) -> str | None:
    """Return what a command prints, "" if it fails, or None if it is absent or does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "" if done.returncode else done.stdout
