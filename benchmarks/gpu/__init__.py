"""All measurements that need a GPU: `make gpu-check`. See `benchmarks.gpu.__main__`."""

import os
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement  # timm needs it, too

# Steps are forked processes, which cannot use CUDA if an import in this process has asked the CUDA
# runtime whether there is a GPU.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def unmet() -> dict[str, str]:
    """Return the requirements of the library that are not met, with the installed versions."""
    found = {}
    for line in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        needed = Requirement(line)
        try:
            installed = version(needed.name)
        except PackageNotFoundError:
            found[line] = "none"
        else:
            if not needed.specifier.contains(installed, prereleases=True):
                found[line] = installed
    return found


if others := unmet():  # checked here, before an import fails with a less clear error
    told = ", ".join(f"'{line}' ({installed} is installed)" for line, installed in others.items())
    sys.exit(
        f"{sys.executable} lacks {told}; put it into a folder, `{sys.executable} -m pip install "
        f"--no-deps --target FOLDER {' '.join(map(repr, others))}`, and call again with "
        "PYTHONPATH=FOLDER"
    )
