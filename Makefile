# Every target does its own set-up first: a virtual environment in .venv, pinned by constraints.txt. All are safe to repeat.
#
#   make demo       train the default recipe, localise, and write runs/localise/   (ARGS=--overwrite replaces it)
#   make test       lint, types and the fast tests                                 (CORES=8 on a larger machine)
#   make test-all   every test, the slow ones too
#   make test-hostile   kill runs and feed hostile files, 50 minutes   (ARGS='--minutes 5 --seed 1 --only saves texts')
#   make lint       ruff and mypy only
#   make format     format the code
#   make bench      side-by-side measurements; results are kept in bench/
#   make clean      remove caches and builds; .venv and runs/ stay

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
CORES ?= 2
ARGS  ?=

# The first Python here that is new enough; `make PYTHON=...` names another.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
endif

# Comments in the docs' code are aligned by hand, which the formatter would undo.
FORMAT := $(BIN)/ruff format --extend-exclude '*.md'

# Each test worker computes with one thread, so that workers do not compete for cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(CORES)

.PHONY: demo test test-all test-hostile lint format bench clean
.DEFAULT_GOAL := demo

demo: $(STAMP)
	@$(BIN)/qkv demo $(ARGS)

test: lint
	$(PYTEST) $(ARGS)

test-all: lint
	$(PYTEST) -m "" $(ARGS)

test-hostile: $(STAMP)
	$(BIN)/python tests/hostile $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(FORMAT) --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(FORMAT)

bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# PyTorch is installed first, with its progress shown, since it is most of the download. PyPI's wheel for Linux includes the CUDA
# libraries; without a GPU, pip's own settings (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) can point to an index with the CPU wheel.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || $(call stop,there is none on the PATH: install one or say where it is with make PYTHON=/path/to/python3)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(call stop,$(PYTHON) is not)
	@$(PYTHON) -c 'import ensurepip, venv' || $(call stop,$(PYTHON) lacks its module venv: apt install python3-venv)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
		{ echo "Making $(VENV) with $$($(PYTHON) -V) …" && $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) torch
	@echo "Installing qkv and its tools into $(VENV) …"
	@$(PIP) --quiet -e '.[dev]'
	@touch $@

stop = { echo "qkv needs Python 3.11 or newer with venv; $(1)" >&2; exit 1; }
