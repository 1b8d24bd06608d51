"""`DividedTokens`: the tokens of a stack divided over ranks, by context parallelism, and within it by sequence parallelism.

Context parallelism divides the tokens for every layer (zig-zag chunks, so causal attention is balanced). Sequence
parallelism (Korthikanti et al. 2022) divides them over the ranks of the axis "tensor" wherever heads and neurons are not:
in norms, dropout and residual connections. A divided sublayer gathers them, and its outputs, of which each rank has a
summand, are summed and divided again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ....core.graphs import untraced
from ....core.layout import Layout
from ....core.ranks import Ranks, draws_alike
from ....nn.attention.attend import attend
from ....nn.attention.mixer import Pass
from ....nn.attention.multi_head import MultiHeadAttention
from ....nn.cost.plan.rules import ContextAttention
from ....nn.layers.linear import Linear
from ....nn.patterns.documents import TokenPlaces, placed, places_of, placing
from .axis import TokenAxis
from .context import attention
from .linear import linear_attention, passes_sums

_SEEDS = 1 << 62


@untraced
def _drawn_seed() -> int:
    return int(torch.randint(_SEEDS, ()))


class DividedSublayer(NamedTuple):
    """A sublayer whose output is a sum over ranks.

    last:  its last linear layer.
    first: the index of this rank's first head or neuron.
    """

    last: Linear
    first: int


class DividedTokens:
    """The tokens of one forward pass divided over ranks, see `core.ranks.TokenSplit`.

    In training steps on CPUs, ranks that have the same rows draw the same random numbers, and dropout masks depend on the
    places of tokens, heads and neurons in the whole batch. On other devices and in compiled graphs, they draw different
    numbers in `own_randomness`, so dropout of different tokens and heads is independent.

    divided: the sublayers whose outputs are sums over ranks.
    """

    def __init__(
        self,
        context: Ranks,
        tensor: Ranks,
        method: ContextAttention,
        divided: Mapping[nn.Module, DividedSublayer],
        layout: Layout,
    ) -> None:
        self.context = TokenAxis(layout, context, "zigzag")
        self.tensor = TokenAxis(self.context.layout, tensor, "contiguous")
        self.method, self.divided = method, divided
        self.number = context.rank * tensor.size + tensor.rank
        self.drops_alike = layout.device.type == "cpu" and draws_alike()

    @cached_property
    def places(self) -> tuple[TokenPlaces | None, TokenPlaces, TokenPlaces]:
        """The places of three sets of tokens: of all ranks, of this rank's part of the axis "context", and of this rank."""
        whole, layout = places_of(self.context.whole), self.context.whole
        numbered = whole or TokenPlaces(token=torch.arange(layout.shape[1], dtype=torch.int32)[None])
        context = numbered.over(self.context.own)
        return whole, context, replace(context.over(self.tensor.own), part=self.number)

    def own(self, x: Tensor) -> Tensor:
        return self.tensor.own(self.context.own(x))

    def whole(self, x: Tensor) -> Tensor:
        return self.context.gather(self.tensor.gather(x))

    @contextmanager
    def own_randomness(self) -> Iterator[None]:
        if self.drops_alike:
            with placed(self.places[2]):
                yield
            return
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

    def _placing(self, module: nn.Module, which: int, head: int = 0, channel: int = 0) -> AbstractContextManager[None]:
        """Return a context that sets the places of tokens, heads and channels, from which dropout masks are computed.
        Return a null context in evaluation, and if ranks need not draw alike."""
        if not module.training or not self.drops_alike:
            return nullcontext()
        places = self.places[which]
        if head or channel:
            places = replace(places or TokenPlaces(), head=head, channel=channel)
        return placing(places)

    def apply(self, module: nn.Module, x: Tensor, run: Pass, mixes: bool) -> Tensor:
        divided = self.divided.get(module)
        if divided is not None:
            x = self.tensor.gather(x)
            with self._placing(module, 1, *((divided.first, 0) if mixes else (0, divided.first))):
                out = module(x, run) if mixes else module(x)
            out, last = self.tensor.sum_and_scatter(out), divided.last
            return out if last.bias is None else out + last.bias
        if not mixes:
            here = replace(run, layout=self.tensor.layout)
            return module(x, here) if getattr(module, "takes_pass", False) else module(x)
        if type(module) is MultiHeadAttention or passes_sums(module, self.context.whole):
            x = self.tensor.gather(x)
            with self._placing(module, 1):
                return self.tensor.own(module(x, run))
        whole = self.context.whole
        everything = replace(run, layout=whole, tables=run.position.tables(whole), attend=attend, linear=None)
        x = self.whole(x)
        with self._placing(module, 0):
            return self.own(module(x, everything))
