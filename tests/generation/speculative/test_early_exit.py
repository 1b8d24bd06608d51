"""Early exit: the first layers propose with the model's cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import qkv
from qkv.generation import generate
from qkv.generation.speculation import EarlyExit
from qkv.generation.speculative.early_exit import layers_of


def small(layers: int) -> Any:
    spec = qkv.preset("llama-3-8b", vocab_size=13, d_model=16, n_layers=layers, n_heads=2, n_kv_heads=1, d_ff=24)
    return qkv.build(spec, dtype=torch.float64, seed=0).eval()


@pytest.mark.parametrize(("count", "layers", "expected"), [(2, None, 1), (3, None, 1), (12, None, 4), (12, 7, 7)])
def test_a_third_of_the_layers_by_default(count: int, layers: int | None, expected: int) -> None:
    assert layers_of(EarlyExit(layers=layers), small(count)) == expected


def test_layers_that_change_nothing_make_a_perfect_draft() -> None:
    model = small(4)
    with torch.no_grad():
        for block in model.decoder.layers[2:]:
            for name, parameter in block.named_parameters():
                if "norm" not in name:
                    parameter.zero_()
    out = generate(model, [[1, 2, 3], [4]], speculate="early-exit:2", max_new_tokens=19)
    assert out.best == generate(model, [[1, 2, 3], [4]], max_new_tokens=19).best
    assert [counts[0].accepted for counts in out.acceptance] == [15, 15]


@torch.no_grad()
def test_a_step_of_some_layers_is_taken_back() -> None:
    model, ids = small(3), torch.tensor([[1, 2, 3]])
    cache = model.start(1)
    model.step(ids, cache)
    one = torch.tensor([[4]])
    first = model.step(one, cache, layers=1)
    cache.rewind(1)
    assert not torch.allclose(model.step(one, cache), first)
    cache.rewind(1)
    assert torch.allclose(model.step(one, cache), model(torch.tensor([[1, 2, 3, 4]]))[:, -1])
