# Every target does its own set-up first: a virtual environment in .venv, pinned by constraints.txt. All are safe to repeat.
# Without a GPU, PyTorch's CPU wheel is installed (docs/installation.md).
#
#   make demo       train the default recipe, localise, and write runs/localise/   (ARGS=--overwrite replaces it)
#   make test       lint, types and the fast tests                                 (CORES=8 on a larger machine)
#   make test-all   every test, the slow ones too
#   make test-hostile   kill runs and feed hostile files, 50 minutes   (ARGS='--minutes 5 --seed 1 --only saves texts')
#   make lint       ruff and mypy only
#   make format     format the code
#   make docs       the documentation site, in build/site
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

# Tests start many processes. Keeping bytecode saves each of them from compiling qkv and the tests again.
unexport PYTHONDONTWRITEBYTECODE

# Each test worker computes with one thread, so that workers do not compete for cores; one that is done takes tests of others.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(CORES) --dist worksteal

.PHONY: demo test test-all test-hostile lint format docs bench clean
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

# Strict: a link or an anchor that leads nowhere fails. The notice that is turned off is about the generator's successor.
docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The site is in build/site: open build/site/index.html."

bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# A pip that uses the versions of constraints.txt.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -c constraints.txt

# PyTorch is installed first, with its progress shown, since it is most of the download. On Linux, PyPI's wheel brings gigabytes of CUDA
# libraries, so a machine without a GPU gets the wheel of PyTorch's CPU index. If that index can't be reached, PyPI's wheel serves.
# `make TORCH_INDEX=URL` uses another index of PyTorch, such as one for ROCm; `make TORCH_INDEX=` uses pip's own.
CPU_INDEX := https://download.pytorch.org/whl/cpu
SYSTEM    := $(shell uname -s)
NVIDIA    := /proc/driver/nvidia
ROCM      := /opt/rocm

ifneq ($(origin TORCH_INDEX),undefined)
choose_index = index='$(TORCH_INDEX)'; reason="chosen by TORCH_INDEX"
else ifneq ($(SYSTEM),Linux)
choose_index = index=''; reason="the only wheel for $(SYSTEM)"
else
choose_index = index=''; \
	if nvidia-smi -L >/dev/null 2>&1 || [ -e $(NVIDIA) ]; then reason="with CUDA: this machine has an NVIDIA GPU"; \
	elif rocminfo >/dev/null 2>&1 || [ -e $(ROCM) ]; then \
		reason="this machine has an AMD GPU, which needs another wheel: see docs/installation.md"; \
	else index='$(CPU_INDEX)'; reason="CPU only: no GPU found"; fi
endif

# --no-deps, because PyTorch's index lacks the pinned versions of its dependencies; the next step gets them from pip's own index.
install_torch = $(choose_index); \
	echo "Installing PyTorch from $${index:-pip's own index} ($$reason) …"; \
	if [ -n "$$index" ]; then \
		$(PIP) --index-url "$$index" --no-deps --retries 0 --timeout 10 torch && exit; \
		echo "That failed; installing PyTorch from pip's own index …"; \
	fi; \
	$(PIP) torch

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || $(call stop,there is none on the PATH: install one or say where it is with make PYTHON=/path/to/python3)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || $(call stop,$(PYTHON) is not)
	@$(PYTHON) -c 'import ensurepip, venv' || $(call stop,$(PYTHON) lacks its module venv: apt install python3-venv)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
		{ echo "Making $(VENV) with $$($(PYTHON) -V) …" && $(PYTHON) -m venv --clear $(VENV); }
	@$(install_torch)
	@echo "Installing qkv and its tools into $(VENV) …"
	@$(PIP) --quiet -e '.[dev]'
	@touch $@

stop = { echo "qkv needs Python 3.11 or newer with venv; $(1)" >&2; exit 1; }
