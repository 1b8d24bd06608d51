"""Small models of many families with weights away from their start, for tests of pruning."""

from __future__ import annotations

import torch
from torch import nn

import qkv
from qkv.io.families import preset
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
TARGET = torch.tensor([[1, 2, 3], [4, 5, 6]])
SMALL = {"vocab_size": 11, "d_model": 24, "n_layers": 2, "n_heads": 6}

FAMILIES = {
    "gpt2": (preset("gpt2", **SMALL, max_positions=16), {"decoder.0": [1, 4], "decoder.1": [0]}),
    "llama-gqa": (preset("llama", **SMALL, n_kv_heads=3), {"decoder.0": [2, 3], "decoder.1": [0, 3, 5]}),
    "llama-mha": (preset("llama", **SMALL), {"decoder.0": [2]}),
    "alibi": (preset("gpt2", **SMALL, position="alibi"), {"decoder.0": [1, 4], "decoder.1": [0]}),
    "t5": (
        preset("t5-small", **SMALL, d_head=4, d_ff=32),
        {"encoder.0": [5], "decoder.1": [0, 1], "decoder.0.cross": [2]},
    ),
    "transformer": (
        preset("transformer", **SMALL, d_ff=32),
        {"encoder.1": [1], "decoder.0.cross": [0, 2, 3], "decoder.1": [5]},
    ),
    "bert": (preset("bert-base", **SMALL), {"encoder.0": [0, 1, 2, 3, 4]}),
    "sinks": (
        preset("gpt2", **SMALL, max_positions=16).replace({"decoder.blocks.*.attention.sink": "learned"}),
        {"decoder.1": [0, 5]},
    ),
    "qk-norm": (
        preset("llama", **SMALL).replace({"decoder.blocks.*.attention.qk_norm": "rmsnorm"}),
        {"decoder.1": [3]},
    ),
    "value-width": (
        preset("gpt2", **SMALL, max_positions=16).replace({"decoder.blocks.*.attention.d_value": 3}),
        {"decoder.0": [0, 2]},
    ),
}


def inputs(model: nn.Module) -> tuple[torch.Tensor, ...]:
    return (IDS, TARGET) if model.is_encoder_decoder else (IDS,)


def stirred(spec: qkv.Transformer) -> nn.Module:
    """Every parameter, biases and sinks too, away from where it starts."""
    model = build(spec, seed=0, dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
    return model
