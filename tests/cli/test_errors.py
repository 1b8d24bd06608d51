from __future__ import annotations

import pytest
import torch

from qkv.cli.errors import USER, describe
from qkv.data.loader.workers import WorkerDied


def test_an_allocation_that_fails_is_told_as_such() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    for error in (caught.value, MemoryError(), RuntimeError("std::bad_alloc")):
        status, said = describe(error)
        assert status == USER and "out of memory" in said and "batching.tokens" in said


def test_a_worker_that_was_killed_is_no_bug() -> None:
    status, said = describe(WorkerDied("a process that reads data died"))
    assert status == USER and said == "a process that reads data died"
