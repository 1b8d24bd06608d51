"""Small models whose parameters are all different, for kernels that run all their layers in one call."""

from __future__ import annotations

from typing import Any

import torch

import qkv
from qkv.nn.models.transformer import TransformerModel


def varied_model(
    preset: str, sizes: dict[str, Any], changes: dict[str, Any], dtype: torch.dtype = torch.float32
) -> TransformerModel:
    """A preset of two layers with changes of its decoder's blocks (`*.`), and noise on its parameters."""
    own_sizes = {key: value for key, value in sizes.items() if (preset, key) != ("openai-gpt", "d_ff")}
    spec = qkv.preset(preset, **own_sizes)
    own = {f"decoder.blocks.{i}.{key[2:]}": value for key, value in changes.items() for i in range(2)}
    built = qkv.build(spec.replace(own) if own else spec, dtype=dtype, seed=0).eval()
    assert isinstance(built, TransformerModel)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter += torch.randn(parameter.shape, generator=random).to(dtype) * 0.1
    return built
