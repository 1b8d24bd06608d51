"""The most memory of a server: what a token, the prefix caches and a step can take."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.runs.inference.run import Run
from qkv.serving.engine.memory import server_memory, token_bytes


def test_a_token_takes_what_a_cache_holds_of_it(run: Run) -> None:
    model: Any = run.model
    cache = model.start(1, capacity=12)
    with torch.inference_mode():
        model.step(torch.zeros(1, 12, dtype=torch.long), cache)
    held = sum(x.nbytes for state in cache.layers for x in state.tensors().values() if x.is_floating_point())
    assert token_bytes(model.spec, torch.float32) * 12 == held


@pytest.mark.slow  # it traces a step
def test_each_part_is_counted(run: Run) -> None:
    memory = server_memory([run, run], 2000, 1000, 10**9, 8192)
    assert memory.caches == 2000 * token_bytes(run.model.spec, torch.float32)
    assert memory.prefixes == 2000 and memory.bodies == 10**9
    assert memory.program > 1e8 and memory.step >= 3 * 4 * run.model.vocab_size * 2**15 / 2
