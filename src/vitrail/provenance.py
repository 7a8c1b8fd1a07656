"""Where a number comes from: software, code, device and time, and nothing about the person.

Host names, user names and paths are left out, so that the records can be published unchanged.
"""

# decides no number

from __future__ import annotations

import platform
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vitrail.errors import VitrailError

PACKAGE = Path(__file__).parent
DIRTY = "-dirty"
PACKAGES = ("vitrail", "torch", "torchvision", "timm", "numpy", "scikit-learn", "snakemake")


def provenance(device: str, **extra: Any) -> dict[str, Any]:
    """Return versions, commit, device and whether float32 is rounded to TF32 there, as plain data.

    `device` is a device's name in torch. `extra` adds entries, or replaces those of the same name.
    """
    import torch  # imported here, so that `commit` works without torch

    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    return {
        "python": platform.python_version(),
        "packages": versions,
        "commit": extra["commit"] if "commit" in extra else commit(),
        "device": device_name(device),
        "tf32": torch.device(device).type == "cuda" and tf32,
        **extra,
    }


def duration(seconds: float) -> str:
    """Write a time for people: "0.3 s", "42 s", "7 min", "3 h 05 min", "2.1 days"."""
    if seconds < 100:
        return f"{seconds:.1g} s" if 0 < seconds < 1 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes >= 48 * 60:
        return f"{seconds / 86400:.1f} days"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def head() -> str | None:
    """Return HEAD's hash in the checkout that this package is imported from, None without one."""
    return _git("rev-parse", "HEAD")


def checkout() -> Path:
    """Return the root of the checkout that this package is imported from."""
    return PACKAGE.parents[1]


def commit() -> str | None:
    """Return the hash of `head`, with "-dirty" if files of the checkout differ from HEAD.

    "-dirty" is also appended if git cannot tell. A new file counts as a difference: a paper's
    folder can produce numbers without having been committed. None outside of a checkout.
    """
    found = head()
    return f"{found}{DIRTY}" if found and changed_files() != [] else found


def changed_files() -> list[str] | None:
    """Return the files of the checkout that differ from HEAD or are new, None if git cannot tell.

    Files that git ignores are left out, and the published results, as no number depends on them.
    """
    return _status(".", ":(top,exclude)results/published")


def _status(*places: str) -> list[str] | None:
    # A renamed file is listed as a deleted and a new file; -z leaves names unquoted.
    options = ("--porcelain", "-z", "--no-renames", "--untracked-files=all")
    status = _git("status", *options, "--", *places)
    return None if status is None else [entry[3:] for entry in status.split("\0") if entry]


def is_ancestor(commit: str) -> bool:
    """Whether a commit is in the history of the checkout's HEAD; False if git cannot tell."""
    return _git("merge-base", "--is-ancestor", commit, "HEAD") is not None


def uncommitted(folder: Path) -> list[str]:
    """Return the files of a folder that differ from HEAD or are new, none if git cannot tell."""
    return _status(str(folder.absolute())) or []


def require_own_package(root: Path) -> None:
    """Raise a `VitrailError` if the checkout `root` has a vitrail that is not the imported one."""
    own = (root / "src" / "vitrail").resolve()
    if own.is_dir() and own != PACKAGE.resolve():
        raise VitrailError(
            f"vitrail is imported from {PACKAGE}, and this checkout has its own in {own}: activate "
            "this checkout's environment (make install) or set PYTHONPATH=src"
        )


def require_gpu_build() -> None:
    """Raise a `VitrailError` if the installed torch is a build without GPU support."""
    import torch

    if not (torch.version.cuda or torch.version.hip):
        raise VitrailError(
            f"torch {torch.__version__} is for CPUs: install its build for GPUs (in a checkout: "
            "rm -rf .venv && make install TORCH=cuda)"
        )


def device_name(device: str) -> str:
    """Return "cpu: <model> (<instructions>), <n> threads", or the accelerator's own name.

    The instructions are the vector instructions that torch uses, such as AVX2 or AVX512. On
    processors with different instructions, the same training can end in weights of other bits.
    """
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    model, instructions = _processor(), torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return f"{device}: {model} ({instructions}), {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    """Return the processor's model name, on Linux from /proc/cpuinfo."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    """Return git's output on the checkout of this package, None without one or on failure."""
    if not (checkout() / ".git").exists():  # an installed copy, be it below some repository
        return None
    command = ["git", "-C", str(checkout()), *arguments]
    try:
        answer = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.rstrip("\n")


def peak_memory_bytes(device: str) -> int:
    """Return this process's peak memory: allocated on a GPU `device`, otherwise resident."""
    import resource

    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
