"""`DividedTokens`: the tokens of a stack divided over ranks, by context parallelism, and within it by sequence parallelism.

Context parallelism divides the tokens for every layer (zig-zag chunks, so causal attention is balanced). Sequence
parallelism (Korthikanti et al. 2022) divides them over the ranks of the axis "tensor" wherever heads and neurons are not:
in norms, dropout and residual connections. A divided sublayer gathers them, and its outputs, of which each rank has a
summand, are summed and divided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from ....core.graphs import untraced
from ....core.layout import Layout
from ....core.ranks import Ranks
from ....nn.attention.attend import attend
from ....nn.attention.mixer import Pass
from ....nn.attention.multi_head import MultiHeadAttention
from ....nn.cost.plan.rules import ContextAttention
from ....nn.layers.linear import Linear
from .axis import TokenAxis
from .context import attention
from .linear import linear_attention, passes_sums

_SEEDS = 1 << 62


@untraced
def _drawn_seed() -> int:
    return int(torch.randint(_SEEDS, ()))


class DividedTokens:
    """The tokens of one forward pass divided over ranks, see `core.ranks.TokenSplit`.

    Ranks that have the same rows draw the same random numbers, except in `own_randomness`, so dropout of different
    tokens and heads is independent.

    divided: the sublayers of which each rank computes a summand, and the last linear layer of each.
    """

    def __init__(
        self,
        context: Ranks,
        tensor: Ranks,
        method: ContextAttention,
        divided: Mapping[nn.Module, Linear],
        layout: Layout,
    ) -> None:
        self.context = TokenAxis(layout, context, "zigzag")
        self.tensor = TokenAxis(self.context.layout, tensor, "contiguous")
        self.method, self.divided = method, divided
        self.number = context.rank * tensor.size + tensor.rank

    def own(self, x: Tensor) -> Tensor:
        return self.tensor.own(self.context.own(x))

    def whole(self, x: Tensor) -> Tensor:
        return self.context.gather(self.tensor.gather(x))

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        seed = _drawn_seed()
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed + self.number)
            yield

    def share(self, run: Pass) -> None:
        run.split, run.layout = self, self.context.layout
        run.tables = run.position.tables(run.layout)
        if self.context.ranks.size > 1:
            run.attend = partial(attention, self.context, self.method)
            run.linear = partial(linear_attention, self.context)

    def apply(self, module: nn.Module, x: Tensor, run: Pass, mixes: bool) -> Tensor:
        last = self.divided.get(module)
        if last is not None:
            x = self.tensor.gather(x)
            out = self.tensor.sum_and_scatter(module(x, run) if mixes else module(x))
            return out if last.bias is None else out + last.bias
        if not mixes:
            here = replace(run, layout=self.tensor.layout)
            return module(x, here) if getattr(module, "takes_pass", False) else module(x)
        if type(module) is MultiHeadAttention or passes_sums(module, self.context.whole):
            return self.tensor.own(module(self.tensor.gather(x), run))
        whole = self.context.whole
        everything = replace(run, layout=whole, tables=run.position.tables(whole), attend=attend, linear=None)
        return self.own(module(self.whole(x), everything))
