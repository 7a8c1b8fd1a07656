# Targets that need .venv first make it from the lock files, unless it is up to date.
PYTHON ?= python3
SCALE ?= laptop
BIN := .venv/bin
READY := .venv/.ready
TOOLS := .venv/.test
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps

# Packages are installed in the environment whose pip is called, even if the user's settings for pip say otherwise.
export PIP_USER := 0
unexport PIP_TARGET PIP_PREFIX PIP_ROOT

# An environment works only in the folder and with the Python for which it was made: its scripts name both.
MADE_FOR := import sys; print(sys.prefix, "with Python %d.%d" % sys.version_info[:2])
ELSEWHERE := $(shell test ! -s $(READY) || $(BIN)/python -c '$(MADE_FOR)' 2>/dev/null | cmp -s - $(READY) || cat $(READY))

.PHONY: install help reproduce test test-all test-library test-cluster test-lower-bounds lint docs schemas lock gpu-check elsewhere

## .venv with all that results need; TORCH=cpu or TORCH=cuda chooses the build of torch
install: $(READY)
	@if [ "$(TORCH)" = cuda ] && ls -d .venv/lib/*/site-packages/torch-*+cpu.dist-info >/dev/null 2>&1; then \
	    echo "vitrail: .venv has torch's build for CPUs; for the build for GPUs: rm -rf .venv \&\& make install TORCH=cuda" >&2; exit 2; fi
	@echo "installed in .venv; in each new shell: . .venv/bin/activate"


## these targets
help:
	@awk '/^## / {what = substr($$0, 4); next} what && /^[a-z-]+:/ {sub(/:.*/, ""); printf "%-18s %s\n", $$0, what} {what = ""}' $(MAKEFILE_LIST)

## every table and figure at SCALE (laptop), then where they are
reproduce: $(READY)
	@$(BIN)/snakemake all --logger vitrail --quiet host reason --config scale=$(SCALE)
	@$(BIN)/vitrail status --scale $(SCALE)

# One thread for each worker, because threads that share a core wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope

## the quick tests, or those of TESTS; none needs SLURM
test: $(TOOLS)
	@$(PYTEST) -m "not slow and not cluster" $(TESTS)

## all tests that need no SLURM, or those of TESTS
test-all: $(TOOLS)
	@$(PYTEST) -m "not cluster" $(TESTS)

## only the tests of models and measures
test-library: $(TOOLS)
	@$(PYTEST) tests/vitrail tests/test_examples.py

## a live two-node SLURM on this machine (root, Debian); skipped with a reason elsewhere
test-cluster: $(TOOLS)
	@$(BIN)/python -m pytest -m cluster -rs

## the library and its examples, with the lowest versions that pyproject.toml allows
test-lower-bounds:
	@PYTHON=$(PYTHON) bash envs/lower_bounds.sh

## the linters, type checks and import rules that CI runs
lint: $(TOOLS)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/snakefmt --check Snakefile workflow/rules
	@$(BIN)/snakemake --lint

## the static site of README, docs/ and the API, in build/docs
docs: $(READY) .venv/.docs
	@$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --conf-dir docs . build/docs
	@echo "the site: build/docs/docs/index.html"

## the JSON schemas by which editors check configs/, in workflow/schemas
schemas: $(READY)
	@$(BIN)/python -m tools.schemas

## what only a GPU can tell, by the machine's own Python; ARGS=--quick on a CPU
gpu-check:
	@PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m benchmarks.gpu $(ARGS)

## resolve envs/requirements.in, envs/test.in and envs/docs.in anew
lock:
	@PYTHON=$(PYTHON) bash envs/lock.sh

# pyproject.toml allows those versions of Python for which every package of the lock files is available.
define CHECK_PYTHON
import re, sys
lowest, beyond = re.search('requires-python = ">=(.+),<(.+)"', open("pyproject.toml").read()).groups()
if not [int(n) for n in lowest.split(".")] <= list(sys.version_info[:3]) < [int(n) for n in beyond.split(".")]:
    sys.exit("vitrail needs Python %s or newer, below %s, and $(PYTHON) is %s; give another: make PYTHON=/path/to/python3.11" % (lowest, beyond, sys.version.split()[0]))
endef
export CHECK_PYTHON

elsewhere:
	@echo "vitrail: .venv was made in $(ELSEWHERE), and works only there and with that Python; remove it, then make again: rm -rf .venv" >&2
	@exit 2

$(READY): envs/requirements.lock envs/cpu.lock envs/cuda.lock envs/build.txt envs/install.sh envs/torchvision_on_cpu.py pyproject.toml $(if $(ELSEWHERE),elsewhere)
	@$(PYTHON) -c "$$CHECK_PYTHON"
	@echo "making .venv from envs/requirements.lock (a few minutes, once)"
	@$(PYTHON) -m venv .venv
	@bash envs/install.sh "$(CURDIR)/$(BIN)/python"
	@$(INSTALL) --no-build-isolation --editable .
	@$(BIN)/python -c '$(MADE_FOR)' >$@

$(TOOLS): envs/test.lock $(READY)
	@PIP_CONSTRAINT=envs/build.txt PIP_BUILD_CONSTRAINT=envs/build.txt $(INSTALL) --require-hashes -r envs/test.lock
	@touch $@

.venv/.docs: envs/docs.lock $(READY)
	@$(INSTALL) --require-hashes -r envs/docs.lock
	@touch $@
