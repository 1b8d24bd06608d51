"""What a recurrent model costs: parts that sum up, memory known before the run, and no bound below it."""

from __future__ import annotations

import pytest
from fast_subset import fast

import qkv
from qkv.nn.cost.flops import BatchShape, parts, training_flops
from qkv.nn.cost.memory import MemorySettings, ceiling, predict

SMALL = {"vocab_size": 200, "d_e": 24, "d_h": 32, "d_s": 32}


@pytest.mark.parametrize("context", fast(["fixed-context", "bahdanau", "luong"], "bahdanau"))
def test_memory_and_flops_are_known(context: str) -> None:
    spec, shape = qkv.preset("rnnsearch", **SMALL, context=context), BatchShape(8, 20, 24)
    found = parts(spec, shape)
    assert sum(part.parameters for part in found) == spec.n_parameters
    assert 3 * sum(part.flops for part in found) == training_flops(spec, shape)
    assert {"encoder", "decoder", "head"} <= {part.name for part in found}
    for plan in (MemorySettings(), MemorySettings(padded=True)):
        memory = predict(spec, shape, plan)
        assert memory is not None and memory.weights == 4 * spec.n_parameters
        assert memory.peak < ceiling(spec, shape, plan)
