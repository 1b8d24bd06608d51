"""Linear attention whose tokens are divided over ranks: the sums over tokens, not the tokens, travel.

Each rank computes the sum Σ_s φ(k_s) [v_s, 1]ᵀ of each of its chunks of tokens (B, K, R, E + 1), whose size does not
depend on their number, and gets the sums of all ranks. The state before a chunk is the sum over the chunks before it;
without causality, every query sees the sum over all (Sun et al. 2024, LASP).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ....core.layout import Layout
from ....nn.attention.feature_maps import Features
from ....nn.attention.linear import LinearState, MultiHeadLinearAttention, from_sums, sums_over
from ....nn.attention.linear import linear_attention as attend_here
from ....nn.patterns.documents import document_numbers
from .. import collectives
from ..world import World
from .axis import TokenAxis


def passes_sums(module: nn.Module, layout: Layout) -> bool:
    """Whether a layer is linear attention whose sums can be added up: rows of one document, and features without logs."""
    plain = type(module) is MultiHeadLinearAttention and not module.features.has_log
    return plain and document_numbers(layout) is None


def linear_attention(
    axis: TokenAxis,
    q: Features,
    k: Features,
    v: Float[Tensor, "B T K E"],
    layout: Layout,
    causal: bool = False,
    state: LinearState | None = None,
) -> Float[Tensor, "B T H E"]:
    """`attention.linear.linear_attention` for this rank's tokens, after the sums of all ranks are known."""
    ranks, schedule = axis.ranks, axis.schedule
    assert isinstance(ranks, World) and state is None
    size = schedule.chunk
    places = [slice(at, at + size) for at in range(0, v.shape[1], size)]
    own = [sums_over(_cut(k, place), v[:, place], layout.slice(place.start, place.stop)) for place in places]
    every = collectives.gather(torch.stack(own), ranks, 0)
    if not causal:
        return from_sums(q, every.sum(0), layout, v.dtype)
    numbers = [number for rank in range(ranks.size) for number in schedule.chunks(rank)]
    before = torch.cat([torch.zeros_like(every[:1]), every[torch.tensor(numbers, device=v.device).argsort()].cumsum(0)])
    outputs = []
    for number, place in zip(schedule.chunks(ranks.rank), places, strict=True):
        carried = LinearState()
        carried.sums = before[number]
        here = layout.slice(place.start, place.stop)
        outputs.append(attend_here(_cut(q, place), _cut(k, place), v[:, place], here, True, carried))
    return torch.cat(outputs, 1)


def _cut(features: Features, place: slice) -> Features:
    return Features(features.values[:, place], None)
