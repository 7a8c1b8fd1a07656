# Each target makes .venv from the lock first; a second call finds it ready.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCALE ?= laptop

.PHONY: reproduce test lint lock clean-results

reproduce: $(READY)
	@$(BIN)/snakemake all --config scale=$(SCALE)
	@$(BIN)/vitrine status --config scale=$(SCALE)

test: $(READY)
	@$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/snakemake --lint

# torch, torchvision and timm go in one pip command (they are pinned together in the lock).
$(READY): envs/requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "vitrine needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; run make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r envs/requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
