"""The costs of generating."""

from __future__ import annotations

import torch

from qkv.io.families import preset
from qkv.lab.costs.training import of_preset

CPU = torch.device("cpu")


def test_the_cache_counts_the_source() -> None:
    spec = preset("transformer", d_model=16, n_layers=1, n_heads=2, vocab_size=30)
    costs = of_preset("mine", spec, CPU, length=10)
    assert costs.cache is not None and costs.cache["bf16"] == 2 * (10 + 10) * 16 * 2
