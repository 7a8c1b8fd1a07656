#!/usr/bin/env bash
# Resolve requirements.in for Python 3.11 on Linux; write requirements.lock, cuda.lock and
# environment.yml, and docs.in into docs.lock (cpu.lock is kept by hand). Pins stay as they are where they can;
# `envs/lock.sh --upgrade` takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet uv==0.13.9
cat requirements.lock cuda.lock >"$fresh/all.lock"
# opencv-python-headless takes the place of opencv-python, which wants libGL.
"$fresh/bin/uv" pip compile --quiet --no-header --no-annotate --generate-hashes \
    --python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
    --excludes <(echo opencv-python) "$@" requirements.in -o "$fresh/all.lock"

echo "# Every package pinned, with the hashes of its files; made by \`make lock\`." >requirements.lock
echo "# What the CUDA build of torch needs besides; made by \`make lock\`." >cuda.lock
while IFS= read -r line; do
    [[ $line =~ ^[a-z] ]] && file=requirements.lock
    [[ $line =~ ^(nvidia|cuda|triton)[-=] ]] && file=cuda.lock
    printf '%s\n' "$line" >>"$file"
done <"$fresh/all.lock"

"$fresh/bin/uv" pip compile --quiet --no-header --no-annotate --generate-hashes \
    --python-version 3.11 --python-platform x86_64-unknown-linux-gnu \
    --constraints requirements.lock "$@" docs.in -o "$fresh/docs.lock"
{
    echo "# What \`make docs\` needs besides requirements.lock; made by \`make lock\`."
    cat "$fresh/docs.lock"
} >docs.lock

{
    echo "# The pins of requirements.lock for conda: Python from conda, packages from PyPI. Made by \`make lock\`."
    echo "# pip installs what packages ask for here, so it is opencv-python, which wants libGL."
    printf 'name: vitrail\nchannels: [conda-forge, nodefaults]\ndependencies:\n'
    printf '  - python=3.11\n  - pip\n  - pip:\n'
    sed -n 's/^\([a-z][^ ]*\) .*/      - \1/p' requirements.lock | sed 's/opencv-python-headless/opencv-python/'
} >environment.yml
