"""Groups of processes that the tests of this folder share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rank_pool import RankPool


@pytest.fixture(scope="session")
def two() -> Iterator[RankPool]:
    pool = RankPool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def four() -> Iterator[RankPool]:
    pool = RankPool(4)
    yield pool
    pool.close()
