"""What every test shares: one thread, a fresh seed, and generated examples that are the same on every machine."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("qkv", deadline=None, derandomize=True, database=None)
settings.load_profile("qkv")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
