"""What the SLURM of this machine answers."""

from __future__ import annotations

import getpass
import math
import re
import shutil
import subprocess

SECONDS = 10  # to wait for an answer
SHOWN = "%R|%l|%c|%m|%G"  # partition, time limit, and CPUs, MB and generic resources of a node
LINE = re.compile(
    r"^(\S+)\|(?:infinite|(?:(\d+)-)?(?:(\d+):)?(\d+):\d+)\|(\d+)\|(\d+)\|(.*)$", re.MULTILINE
)
"""Matches a line of `SHOWN`: partition, days, hours, minutes, CPUs, MB, generic resources."""
GPUS = re.compile(r"\bgpu(?::[\w.-]+)?:(\d+)")  # gpu:8, or gpu:a100:8(S:0-1)


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


def limits() -> dict[str, dict[str, float]]:
    """Return the limits of each partition, named as in the partition file; {} without an answer.

    They are the minutes of a job, and the GPUs, CPUs and MB of a node. Where nodes differ, each is
    the largest.
    """
    found: dict[str, dict[str, float]] = {}
    shown = _ask("sinfo", "--all", "--exact", "--noheader", f"--format={SHOWN}") or ""
    for name, days, hours, minutes, cpus, memory, resources in LINE.findall(shown):
        time = (int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes) if minutes else math.inf
        of_node = {
            "max_runtime": time,
            "max_gpu": sum(map(int, GPUS.findall(resources))),
            "max_threads": int(cpus),
            "max_mem_mb": int(memory),
        }
        if not int(cpus):  # a partition without nodes
            continue
        others = found.get(name, of_node)
        found[name] = {limit: max(others[limit], value) for limit, value in of_node.items()}
    return found


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
