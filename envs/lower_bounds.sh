#!/usr/bin/env bash
# Install the lowest versions that pyproject.toml allows in a fresh environment, and test the library.
# First install only the core, as a wheel, and run the examples that need no more; then add the extra `cli`.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
python="$fresh/env/bin/python"
"${PYTHON:-python3}" -m venv "$fresh/env"
"$python" - "$fresh" <<'END'
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
lowest = {"core": project["dependencies"], "cli": project["optional-dependencies"]["cli"]}
for name, requirements in lowest.items():
    lines = [line.replace(">=", "==") + "\n" for line in requirements]
    (Path(sys.argv[1]) / f"{name}.txt").write_text("".join(lines))
END
install() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }

git archive HEAD | tar -x -C "$fresh" --one-top-level=checkout  # a copy, since a build leaves files in the folder
install -r "$fresh/core.txt"
install --constraint "$fresh/core.txt" "$fresh/checkout"
# The wheel does not have the package `replication`.
(cd "$fresh" && for example in $(grep -L "^from replication" checkout/examples/*.py); do
    echo "$example" && "$python" "$example"
done)

# The tests of segmentation need the extra `segmentation`, so they are left out.
install -r "$fresh/core.txt" -r "$fresh/cli.txt" pytest hypothesis shap fvcore grimp onnx onnxscript onnxruntime
PYTHONPATH=src OMP_NUM_THREADS=1 "$python" -m pytest -p no:cacheprovider \
    --ignore tests/vitrail/segmentation tests/vitrail tests/test_examples.py
