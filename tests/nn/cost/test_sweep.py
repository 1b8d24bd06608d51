"""Costs of several models and sizes: the numbers are the specs' own, and ranges are read as written."""

from __future__ import annotations

import pytest

import qkv
from qkv.nn.cost.kv_cache import cache_bytes
from qkv.nn.cost.sweep import costs_of, read_range


def test_costs_are_the_specs_own() -> None:
    spec = qkv.preset("mixtral-8x7b")
    costs = costs_of("mixtral-8x7b", spec, 1024)
    assert costs.parameters == spec.n_parameters == 46_702_792_704
    assert costs.active == spec.cost().active == 12_879_925_248
    assert costs.forward == spec.cost(1024).flops / 1024 and costs.training == 3 * spec.cost(1024).flops
    assert costs.cache == cache_bytes(spec, 1024) and costs.weights == 2 * costs.parameters  # type: ignore[arg-type]
    assert costs_of("bert", qkv.preset("bert-base"), 512).cache is None
    assert costs_of("vit", qkv.preset("vit-base-16"), 512).tokens == 197
    with pytest.raises(ValueError, match="2,000 tokens are more than gpt2's context of 1,024"):
        costs_of("gpt2", qkv.preset("gpt2"), 2000)


def test_ranges_are_read_as_lists_of_values() -> None:
    assert read_range("tokens=1k..10k") == ("tokens", [1000, 2000, 4000, 8000, 10_000])
    assert read_range("n_layers=2..8") == ("n_layers", [2, 4, 8])
    assert read_range("tokens=1.5k..1M")[1][-1] == 10**6
    assert read_range("n_layers=6, 12,24") == ("n_layers", [6, 12, 24])
    with pytest.raises(ValueError, match="is not a sweep; write it as tokens=1k"):
        read_range("tokens=5")
    with pytest.raises(ValueError, match="to a larger one, not from 8 to 2"):
        read_range("n_layers=8..2")
