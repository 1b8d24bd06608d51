"""What every test shares: one thread, a fresh seed, and generated examples that are the same on every machine."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "contracts"))
import summary

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it runs in the background
settings.register_profile("qkv", deadline=None, derandomize=True, database=None)
settings.load_profile("qkv")


def pytest_configure(config: pytest.Config) -> None:
    """Under xdist the controller meets no folder's own conftest, and it is the one that prints the contracts' summary."""
    if not config.pluginmanager.has_plugin(summary.NAME):
        config.pluginmanager.register(summary, summary.NAME)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
