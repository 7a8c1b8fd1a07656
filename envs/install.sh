#!/usr/bin/env bash
# Install the locked packages and check their hashes: envs/install.sh [PYTHON], by default `python`.
# TORCH=cpu or TORCH=cuda chooses the build of torch; by default the one for CUDA if there is an NVIDIA
# driver, else the one for CPUs.
set -euo pipefail
cd "$(dirname "$0")"
python=${1:-python}  # an absolute path, or a name on the PATH
if [[ -z ${TORCH:-} ]]; then
    TORCH=cpu
    if [[ -e /proc/driver/nvidia/version ]] || command -v nvidia-smi >/dev/null; then TORCH=cuda; fi
fi
[[ $TORCH == cpu || $TORCH == cuda ]] || { echo "TORCH is '$TORCH'; give cpu or cuda" >&2; exit 2; }

# Some packages are built from source, with pinned tools. Older and newer pip read different variables.
export PIP_CONSTRAINT=build.txt PIP_BUILD_CONSTRAINT=build.txt

# Locks are complete. --no-deps keeps out opencv-python, which opencv-python-headless replaces.
install() {
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes "$@"
}

# macOS has no separate CPU build. Few retries, so that an unreachable index does not cost minutes.
if [[ $TORCH == cpu && $(uname) == Linux ]]; then
    said=$(install --extra-index-url https://download.pytorch.org/whl/cpu --retries 1 --timeout 15 -r cpu.lock 2>&1) ||
        echo "taking torch's build of PyPI, for CUDA, as pip did not install the one for CPUs (${said##*$'\n'})"
fi
install -r requirements.lock
if [[ $(uname) != Linux ]]; then
    : # PyPI's build of torch needs no further packages
elif "$python" -c 'import importlib.metadata as m; raise SystemExit("cuda" not in str(m.requires("torch")))'; then
    install -r cuda.lock
else
    packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp torchvision_on_cpu.py "$packages"
    echo "import torchvision_on_cpu" >"$packages/torchvision_on_cpu.pth"
fi
