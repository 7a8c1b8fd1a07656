#!/usr/bin/env bash
# Resolve requirements.in, test.in and docs.in for Python 3.11 on Linux; write requirements.lock,
# cuda.lock, test.lock, docs.lock and environment.yml (cpu.lock is edited by hand). Pins stay as they are
# where possible; `envs/lock.sh --upgrade` takes the newest versions. `envs/lock.sh --check` writes
# nothing: it resolves with these pins for each platform and Python, and fails if a pin is missing.
set -euo pipefail
cd "$(dirname "$0")"

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"${PYTHON:-python3}" -m venv "$fresh"
"$fresh/bin/pip" install --quiet uv==0.13.9
compile() {
    "$fresh/bin/uv" pip compile --quiet --no-header --no-annotate --generate-hashes \
        --python-version "${version:-3.11}" --python-platform "${platform:-x86_64-unknown-linux-gnu}" \
        --excludes <(echo opencv-python) "$@"  # replaced by opencv-python-headless, which needs no libGL
}

if [[ ${1:-} == --check ]]; then
    export MACOSX_DEPLOYMENT_TARGET=14.0  # torch's wheels need this version or a newer one
    cat requirements.lock cuda.lock test.lock >"$fresh/all.lock"
    for platform in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu aarch64-apple-darwin; do
        for version in 3.11 3.12 3.13; do
            compile --constraints "$fresh/all.lock" requirements.in test.in -o "$fresh/needed"
            missing=$(comm -13 <(grep -o '^[a-z][^ ]*==[^ ]*' "$fresh/all.lock" | sort -u) \
                <(grep -o '^[a-z][^ ]*==[^ ]*' "$fresh/needed" | sort -u))
            [[ -z $missing ]] || { echo "Python $version on $platform needs $missing" >&2; exit 1; }
            echo "Python $version on $platform: $(grep -c '^[a-z].*==' "$fresh/needed") packages, all in the locks"
        done
    done
    exit
fi

# Packages for results and tests are resolved together, so that no tool of the tests changes a pin.
cat requirements.lock cuda.lock test.lock >"$fresh/all.lock"
compile "$@" requirements.in test.in -o "$fresh/all.lock"
compile --constraints "$fresh/all.lock" requirements.in -o "$fresh/results.lock"

echo "# What results need, each package pinned with the hashes of its files; made by \`make lock\`." >requirements.lock
echo "# What the CUDA build of torch needs besides; made by \`make lock\`." >cuda.lock
echo "# What \`make test\` and \`make lint\` need besides requirements.lock; made by \`make lock\`." >test.lock
while IFS= read -r line; do
    if [[ $line =~ ^[a-z] ]]; then
        file=test.lock
        grep -q "^${line%% *} " "$fresh/results.lock" && file=requirements.lock
        [[ $line =~ ^(nvidia|cuda|triton)[-=] ]] && file=cuda.lock
    fi
    printf '%s\n' "$line" >>"$file"
done <"$fresh/all.lock"

compile --constraints requirements.lock "$@" docs.in -o "$fresh/docs.lock"
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
