"""The most memory of a server: what a token, the prefix caches and a step can take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from qkv.runs.inference.run import Run
from qkv.serving.http.memory import server_memory, token_bytes


def test_a_token_takes_what_a_cache_holds_of_it(runs: dict[str, Run]) -> None:
    model: Any = runs["lm"].model
    cache = model.start(1, capacity=12)
    with torch.inference_mode():
        model.step(torch.zeros(1, 12, dtype=torch.long), cache)
    held = sum(x.nbytes for state in cache.layers for x in state.tensors().values() if x.is_floating_point())
    assert token_bytes(model.spec, torch.float32) * 12 == held


@pytest.mark.slow  # it traces a step of every model
def test_each_part_is_counted(client: TestClient, runs: dict[str, Run]) -> None:
    app: Any = client.app
    models = app.state.models
    memory = server_memory(models)
    assert memory.caches == 2000 * max(token_bytes(run.model.spec, torch.float32) for run in runs.values())
    assert memory.prefixes == 4 * models.prefix_bytes > 0 and memory.bodies == 256 << 20
    assert memory.program > 1e8 and memory.step >= 3 * 4 * 2**26 / 2
