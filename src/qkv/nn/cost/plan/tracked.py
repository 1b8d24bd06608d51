"""Scale the planner's activations to those counted by a training step on tensors without contents (`cost.memory`), so a
plan for one device agrees with `qkv cost fit`.

The planner's formulas divide activations over ranks; the count corrects their size. With l and 2 l layers and one
and two rows,

    bytes of a row in l layers = A(2 l, 2) − A(l, 2) − A(2 l, 1) + A(l, 1)

This leaves out what does not grow with both: copies of weights, embeddings and logits.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal

import torch

from ...models.base import ModelSpec
from ...models.stack import Stack
from ..fit import with_layers
from ..flops import BatchShape
from ..memory import MemorySettings, predict
from .execution import Execution
from .layout import RankLayout
from .rank_memory import activations
from .work import ModelWork, work

Kind = Literal["none", "blocks"]


def tracked(
    model: ModelWork, spec: ModelSpec, source: int, how: Execution, kinds: tuple[Kind, ...] = ("none", "blocks")
) -> ModelWork:
    """Return the work with its activations scaled to their counted size, for some kinds of recomputation. Activations that
    can't be counted keep the size that the formulas give."""
    return replace(model, kept={kind: _factor(spec, model.length, source, how, kind) for kind in kinds})


@lru_cache(maxsize=64)
def _factor(spec: ModelSpec, length: int, source: int, how: Execution, kind: Kind) -> float:
    """Return the counted bytes of the activations of some layers, divided by the formulas' bytes."""
    stacks: list[Stack] = [stack for _, stack in spec.stacks()]
    if not stacks:
        return 1.0
    few = max(len(stack.blocks) if stack.order is None else 1 for stack in stacks)
    few = few if few < max(len(stack.layers) for stack in stacks) else 1  # all layers are in `blocks` of their own
    dtype = torch.bfloat16 if how.width == 2 else None
    settings = MemorySettings(dtype=dtype, recompute=kind)
    sizes: dict[tuple[int, int], float] = {}
    formula: dict[int, float] = {}
    try:
        for layers in (few, 2 * few):
            some = with_layers(spec, layers)
            counted = work("", some, length, source)
            formula[layers] = sum(activations(layer, RankLayout(recompute=kind), how) for layer in counted.layers)
            for rows in (1, 2):
                memory = predict(some, BatchShape(rows, length, source), settings)
                if memory is None:
                    return 1.0
                sizes[layers, rows] = memory.activations
    except ValueError:
        return 1.0
    grown = sizes[2 * few, 2] - sizes[few, 2] - sizes[2 * few, 1] + sizes[few, 1]
    return max(grown / (formula[2 * few] - formula[few]), 0.1)
