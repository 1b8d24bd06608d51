"""BigBird attention (Zaheer et al. 2020) as on the Hub, where a key in several blocks counts several times.

The pattern of blocks is `patterns.bigbird`.
"""

from __future__ import annotations

from operator import index
from typing import Literal

from torch import Tensor, nn

from ...core.graphs import constant
from ...core.layout import Layout
from ..patterns.basic import Pattern
from ..patterns.bigbird import BigBird
from ..positions.base import Bias
from .attend import AttendOptions
from .mixer import Pass, refuse_crossing
from .multi_head import Attention, MultiHeadAttention


class BlockSparseAttention(Attention, kind="block-sparse"):
    """Attention over the blocks of `BigBird`; a key that occurs m times has m times the weight:

    softmax(scale · QKᵀ + ln m) V over the pairs with m > 0.

    `draws` says when random blocks are drawn. "training" does as `transformers`: in evaluation each random block is the
    first block again. "always" has the same blocks in both.
    """

    pattern: BigBird = BigBird(seed=0)
    draws: Literal["training", "always"] = "training"

    adds_bias, state = True, Attention.state

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadBlockSparseAttention(self, d_model, name)


class MultiHeadBlockSparseAttention(MultiHeadAttention):
    """The module of `BlockSparseAttention`."""

    def __init__(self, spec: BlockSparseAttention, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        self.drawn = spec.pattern
        self.undrawn = spec.pattern if spec.draws == "always" else spec.pattern.replace(seed=None)
        self.bound: dict[tuple[bool, int], Pattern] = {}  # by whether random blocks are drawn, and width

    def options(self, run: Pass, layout: Layout, kv_layout: Layout, bias: Tensor | Bias | None) -> AttendOptions:
        width = index(kv_layout.shape[1])  # a graph has one width
        _bind(self, self.training, width)
        pattern = self.bound[self.training, width]
        options = super().options(run, layout, kv_layout, bias) | {"pattern": pattern}
        if not isinstance(pattern, BigBird) or not pattern.repeats:
            return options
        bias = options["bias"]

        def counted() -> Tensor:
            q, k = layout.queries(), kv_layout.keys()
            times = pattern.log_times(q, k)
            return times if bias is None else times + (bias(q, k) if isinstance(bias, Bias) else bias)

        return options | {"bias": run.plan.once(f"times {pattern.text}", (layout, kv_layout, bias), counted)}


@constant  # patterns are computed on the host, while a graph is traced
def _bind(layer: MultiHeadBlockSparseAttention, drawn: bool, width: int) -> int:
    """Add the pattern for rows of a width, if it is missing; returns the number of patterns."""
    if (drawn, width) not in layer.bound:
        layer.bound[drawn, width] = (layer.drawn if drawn else layer.undrawn).over(width, layer.n_heads)
    return len(layer.bound)
