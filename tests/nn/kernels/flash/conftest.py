"""A process in which Triton interprets: Triton decides that when it is imported, so all of it runs beside the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import flash_worker
from flash_remote import Remote


@pytest.fixture(scope="package")
def there() -> Iterator[Remote]:
    """Runs a function of `flash_worker` where Triton interprets."""
    with (
        pytest.MonkeyPatch.context() as patch,
        ProcessPoolExecutor(1, get_context("spawn"), flash_worker.start) as pool,
    ):
        patch.setenv("TRITON_INTERPRET", "1")
        pool.submit(abs, 0).result()  # starts the process, with this environment
        patch.undo()
        yield lambda work, *args: pool.submit(work, *args).result()
