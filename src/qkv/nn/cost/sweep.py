"""Costs of several models, or of one model at several sizes: parameters, FLOPs of a token, weights and cache."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from ...core.spec import brief
from ..models.base import ModelSpec
from ..models.transformer import Transformer
from .flops import BatchShape, training_flops
from .images import image_tokens
from .kv_cache import cache_bytes

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_RANGE = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)\.\.(\d+(?:\.\d+)?)([kmg]?)", re.IGNORECASE)


@dataclass(frozen=True)
class ModelCosts:
    """Costs of a model for rows of `tokens` tokens.

    active:        parameters that a token uses.
    forward:       FLOPs of a forward pass per token; with two stacks, the average over tokens of source and target.
    training:      FLOPs of a training step of one row.
    weights:       bytes of the weights in bf16.
    cache:         bytes of one row's cache in bf16; None for a model without one.
    """

    name: str
    tokens: int
    parameters: int
    active: int
    forward: float
    training: int
    weights: int
    cache: int | None
    two_stacks: bool = False


def costs_of(name: str, spec: ModelSpec, tokens: int) -> ModelCosts:
    """Count the costs of a model; an encoder–decoder has `tokens` on each side, an image model the tokens of its
    images.

    Raises ValueError for more tokens than the model's context.
    """
    tokens = image_tokens(spec) or tokens
    if spec.max_positions is not None and tokens > spec.max_positions:
        raise ValueError(
            f"{tokens:,} tokens are more than {name}'s context of {spec.max_positions:,}; take fewer tokens, or give "
            "the model a longer context, as by max_positions=…"
        )
    shape = BatchShape(1, tokens, tokens if spec.is_encoder_decoder else 0)
    cost = spec.cost(shape.length, shape.source)
    decodes = isinstance(spec, Transformer) and spec.decoder is not None
    cache = cache_bytes(spec, tokens, dtype=torch.bfloat16) if decodes and isinstance(spec, Transformer) else None
    return ModelCosts(
        name,
        tokens,
        cost.parameters,
        cost.active,
        cost.flops / shape.tokens,
        training_flops(spec, shape),
        2 * cost.parameters,
        cache,
        spec.is_encoder_decoder,
    )


def read_range(text: str) -> tuple[str, list[int]]:
    """Parse a sweep into its key and its sizes.

    `tokens=1k..1M` doubles the first size until it reaches the last (k is 1,000); `n_layers=6,12,24` lists the sizes.
    Raises ValueError for anything else.
    """
    key, _, bounds = text.partition("=")
    listed = bounds.replace(" ", "").split(",")
    if key and len(listed) > 1 and all(size.isdecimal() and int(size) > 0 for size in listed):
        return key.strip(), [int(size) for size in listed]
    match = _RANGE.fullmatch(bounds.strip())
    if not key or match is None:
        raise ValueError(f"{brief(text)} is not a sweep; write it as tokens=1k..1M or n_layers=6,12,24")
    low, high = (round(float(match[i]) * _SUFFIXES[match[i + 1].lower()]) for i in (1, 3))
    if not 1 <= low < high:
        raise ValueError(f"a sweep goes from a size of at least 1 to a larger one, not from {low:,} to {high:,}")
    sizes = [low]
    while sizes[-1] * 2 < high:
        sizes.append(sizes[-1] * 2)
    return key.strip(), [*sizes, high]
