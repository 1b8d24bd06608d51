"""Small models with mixtures of experts, and batches for them."""

from __future__ import annotations

import torch

import qkv
from qkv.core.batch import Batch
from qkv.nn.models.transformer import TransformerModel

SIZES = {"vocab_size": 96, "d_model": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "max_positions": 64}


PRESETS = {
    "mixtral-8x7b": {**SIZES, "d_ff": 96, "n_experts": 4},
    "qwen1.5-moe-a2.7b": {**SIZES, "d_ff": 64, "d_expert": 32, "n_experts": 4, "top_k": 2, "d_shared": 64},
}


def mixture(**changes: object) -> TransformerModel:
    """A small model with large experts, whose inputs are correlated and of unequal size."""
    spec = qkv.preset("mixtral-8x7b", **{**PRESETS["mixtral-8x7b"], "d_model": 32, **changes})  # type: ignore[call-overload]
    model: TransformerModel = qkv.build(spec, seed=1).float().eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        mixing = torch.randn(32, 32, generator=generator) * torch.logspace(-1, 1, 32)
        model.decoder.embedding.weight.copy_(torch.randn(96, 32, generator=generator) @ mixing)
    return model


def batch_of(rows: int, tokens: int = 48) -> Batch:
    ids = torch.randint(96, (rows, tokens), generator=torch.Generator().manual_seed(3))
    return Batch({"ids": ids}, None, {}, ids.numel(), ids.numel())
