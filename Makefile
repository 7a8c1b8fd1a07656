# Each target makes .venv from the lock first; a second call finds it ready.
PYTHON ?= python3
SCALE ?= laptop
BIN := .venv/bin
READY := .venv/.ready

.PHONY: reproduce test test-cluster test-lower-bounds lint docs lock

## every table and figure at SCALE (laptop), then where they are
reproduce: $(READY)
	@$(BIN)/snakemake all --quiet rules host reason --config scale=$(SCALE)
	@$(BIN)/vitrail status --scale $(SCALE)

# One thread a worker: two that share a core wait for each other.
test: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadscope -m "not cluster"

## a live two-node SLURM on this machine (root, Debian); skipped with a reason elsewhere
test-cluster: $(READY)
	@$(BIN)/python -m pytest -m cluster -rs

## models, measures and the plan, with the lowest versions that pyproject.toml allows
test-lower-bounds:
	@PYTHON=$(PYTHON) envs/lower_bounds.sh

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/snakefmt --check Snakefile workflow/rules

## the static site of README, docs/ and the API, in build/docs
docs: $(READY) .venv/.docs
	@$(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --conf-dir docs . build/docs
	@echo "the site: build/docs/docs/index.html"

## resolve envs/requirements.in and envs/docs.in anew
lock:
	@PYTHON=$(PYTHON) envs/lock.sh

$(READY): $(wildcard envs/*.lock) envs/build.txt envs/install.sh envs/torchvision_on_cpu.py pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11, 4) or sys.exit("vitrail needs Python 3.11.4 or newer, and $(PYTHON) is older; run make PYTHON=/path/to/python3.11")'
	@echo "making .venv from envs/requirements.lock (a few minutes, once)"
	@$(PYTHON) -m venv .venv
	@envs/install.sh "$(CURDIR)/$(BIN)/python"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.docs: envs/docs.lock $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r envs/docs.lock
	@touch $@
