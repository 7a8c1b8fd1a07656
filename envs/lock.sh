#!/usr/bin/env bash
# Resolve requirements.in in a fresh environment; write requirements.lock and environment.yml.
set -euo pipefail
cd "$(dirname "$0")"
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet -r requirements.in
# NVIDIA's libraries and triton follow from the CUDA build of torch, and are absent from the CPU build's environment.
pins=$("$fresh/bin/pip" freeze --all | grep -viE '^(pip|nvidia-.*|cuda-.*|triton)==' | sed 's/+c[a-z0-9]*$//')
{
  echo "# Every package pinned; made from requirements.in by \`make lock\`."
  echo "$pins"
} >requirements.lock
{
  echo "# The same pins for conda: Python from conda, packages from PyPI. Made by \`make lock\`."
  printf 'name: vitrine\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n'
  while read -r pin; do echo "      - $pin"; done <<<"$pins"
} >environment.yml
