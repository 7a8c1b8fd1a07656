#!/usr/bin/env bash
# Install the locked packages, their hashes checked: envs/install.sh [PYTHON], by default `python`.
set -euo pipefail
cd "$(dirname "$0")"
python=${1:-python}  # by its absolute path, or on the PATH

# Some packages are built from source: with pinned tools (older and newer pip, each by its variable).
export PIP_CONSTRAINT=build.txt PIP_BUILD_CONSTRAINT=build.txt

# The lock is complete: --no-deps keeps out opencv-python, whose place opencv-python-headless takes.
install() { "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$1"; }
install cpu.lock 2>/dev/null || echo "pip's indexes offer no CPU build of torch: the build of PyPI it is"
install requirements.lock
if "$python" -c 'import importlib.metadata as m; raise SystemExit("cuda" not in str(m.requires("torch")))'; then
    install cuda.lock
else
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp torchvision_on_cpu.py "$packages"
    echo "import torchvision_on_cpu" >"$packages/torchvision_on_cpu.pth"
fi
