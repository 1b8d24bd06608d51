"""BigBird's attention (Zaheer et al. 2020) as the Hub has it: blocks of keys, of which some count several times."""

from __future__ import annotations

from operator import index
from typing import Literal

from torch import Tensor, nn

from ..core.graphs import constant
from ..core.layout import Layout
from ..patterns.basic import Pattern
from ..patterns.bigbird import BigBird
from ..positions.base import Bias
from .multi_head import Attention, MultiHeadAttention, Pass


class BlockSparseAttention(Attention, kind="block-sparse"):
    """Attention over the blocks of `BigBird`, where a key that is there m times weighs m times as much:

    softmax(scale · QKᵀ + ln m) V over the pairs with m > 0.

    `draws` says when random blocks are drawn. "training" is what `transformers` does: in evaluation each of them is the
    first block, once more. "always" has the same blocks in both.
    """

    pattern: BigBird = BigBird(seed=0)
    draws: Literal["training", "always"] = "training"

    adds_bias, state = True, Attention.state

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        if cross:
            raise ValueError("blocks are of a sequence that looks at itself; to cross, take attention")
        return MultiHeadBlockSparseAttention(self, d_model, name)


class MultiHeadBlockSparseAttention(MultiHeadAttention):
    """The module of `BlockSparseAttention`."""

    def __init__(self, spec: BlockSparseAttention, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        self.drawn = spec.pattern
        self.undrawn = spec.pattern if spec.draws == "always" else spec.pattern.replace(seed=None)
        self.bound: dict[tuple[bool, int], Pattern] = {}  # by whether random blocks are drawn, and the rows' width

    def rule(
        self, run: Pass, layout: Layout, kv_layout: Layout, bias: Tensor | Bias | None
    ) -> tuple[Pattern, Tensor | Bias | None]:
        width = index(kv_layout.shape[1])  # a graph is for one width
        _bind(self, self.training, width)
        pattern = self.bound[self.training, width]
        if not isinstance(pattern, BigBird) or not pattern.repeats:
            return pattern, bias

        def counted() -> Tensor:
            q, k = layout.queries(), kv_layout.keys()
            times = pattern.log_times(q, k)
            return times if bias is None else times + (bias(q, k) if isinstance(bias, Bias) else bias)

        return pattern, run.plan.once(f"times {pattern.text}", (layout, kv_layout, bias), counted)


@constant  # patterns are made on the host; a graph finds what was made while it was traced
def _bind(layer: MultiHeadBlockSparseAttention, drawn: bool, width: int) -> int:
    """Make the pattern for rows of a width, if there is none yet; how many there are."""
    if (drawn, width) not in layer.bound:
        layer.bound[drawn, width] = (layer.drawn if drawn else layer.undrawn).over(width, layer.n_heads)
    return len(layer.bound)
