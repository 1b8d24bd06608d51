"""Two small finished runs, each trained once; tests that change one copy it first."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import run_tiny


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder–decoder's run."""
    return run_tiny.translator(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def trained_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model's run."""
    return run_tiny.language_model(tmp_path_factory.mktemp("runs"))
