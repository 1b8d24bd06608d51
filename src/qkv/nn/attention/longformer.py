"""Longformer attention (Beltagy et al. 2020): global tokens see all, are seen by all, and have separate projections."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from ...core.graphs import untraced
from ...core.layout import Layout
from ...core.spec import Cost
from ..kv_cache.full import AttentionState, CrossState
from ..layers.linear import Linear
from ..patterns.basic import Global, Pattern, global_tokens, window
from .mixer import Pass, refuse_crossing
from .multi_head import Attention, MultiHeadAttention


class GlobalAttention(Attention, kind="global-attention"):
    """Attention in which global tokens have separate queries, keys and values (Beltagy et al. 2020, §3.1):
    softmax(scale · Q_g K_gᵀ) V_g. All other tokens use Q, K and V, for global keys too.

    The `global` part of the pattern says which tokens are global: tokens with the role GLOBAL in the layout, or the
    first ones. The pattern applies to them as to all others.
    """

    pattern: Pattern = window(257) | global_tokens()

    adds_bias, state = True, Attention.state

    @model_validator(mode="after")
    def _has_global_tokens(self) -> GlobalAttention:
        if not any(isinstance(part, Global) for _, part in self.pattern.walk()):
            raise ValueError(f"{self.pattern} has no global tokens; add `| global_tokens()`, or take attention")
        return self

    @property
    def chosen(self) -> Global:
        """The part of the pattern that says which tokens are global."""
        return next(part for _, part in self.pattern.walk() if isinstance(part, Global))

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadGlobalAttention(self, d_model, name)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """Includes the projections of global tokens if the pattern says how many there are."""
        h, k, d, e = self.widths(d_model)
        queries, keys = d_model * h * d, d_model * k * (d + e)
        biases = (h * d + k * (d + e)) * self.bias
        count = min(self.chosen.first or 0, tokens)
        flops = 2 * (queries * count + keys * tokens) if count else 0
        return super().cost(d_model, tokens, pairs, memory) + Cost(queries + keys + biases, flops)


class MultiHeadGlobalAttention(MultiHeadAttention):
    """The module of `GlobalAttention`. Parameters besides attention's: q_global, k_global, v_global."""

    def __init__(self, spec: GlobalAttention, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        self.chosen = spec.chosen
        self.q_global = Linear(d_model, self.n_heads * self.d_head, spec.bias, into_scores=self.d_head)
        self.k_global = Linear(d_model, self.n_kv_heads * self.d_head, spec.bias)
        self.v_global = Linear(d_model, self.n_kv_heads * self.d_value, spec.bias)

    def mixed(
        self, x: Float[Tensor, "B T M"], run: Pass, layout: Layout, state: AttentionState | CrossState | None = None
    ) -> Float[Tensor, "B T H E"]:
        if state is not None:
            raise ValueError(
                "global tokens need the whole sequence at once; global-attention can't decode token by token"
            )
        tokens = run.plan.once(f"which {self.chosen.text}", (layout,), lambda: GlobalTokens.of(self.chosen, layout))
        if tokens is None:
            return super().mixed(x, run, layout)
        local = super().mixed(x, run, tokens.others)
        return tokens.put(self._global(x, run, tokens), local)

    def _global(self, x: Float[Tensor, "B T M"], run: Pass, tokens: GlobalTokens) -> Float[Tensor, "B G H E"]:
        q = self.normed(self.q_global(tokens.pick(x)), self.q_norm)
        k = self.normed(self.k_global(x), self.k_norm)
        v = self.v_global(x).unflatten(-1, (self.n_kv_heads, self.d_value))
        if run.tables is not None:
            q = run.position.rotate_queries(q, tuple(tokens.pick(table) for table in run.tables))
            k = run.position.rotate_keys(k, run.tables)
        options = self.options(run, tokens.layout, run.layout, run.bias)
        return run.attend(q, k, v, **options | {"name": f"{self.name}.global"})


@dataclass(frozen=True, eq=False)
class GlobalTokens:
    """Which tokens of a batch are global.

    index:  their indices in each row, in order. Rows with fewer global tokens are filled with other tokens.
    layout: the layout of the tokens at `index`; tokens that are not global are padding.
    others: the layout of all tokens; global tokens are padding.
    """

    index: Int[Tensor, "B G"]
    layout: Layout
    others: Layout

    @classmethod
    def of(cls, chosen: Global, layout: Layout) -> GlobalTokens | None:
        """The global tokens of a layout; None if there are none."""
        if chosen.first is None and layout.roles is None:
            return None
        where = chosen.is_global(layout.queries())[..., 0] & layout.valid
        count = _most(chosen, layout, where)
        if count == 0:
            return None
        index = where.int().argsort(dim=1, descending=True, stable=True)[:, :count]

        def picked(t: Tensor) -> Tensor:
            return _picked(t, index)

        own = Layout(
            torch.where(picked(where)[..., None], picked(layout.positions), -1),
            None if layout.segments is None else picked(layout.segments),
            None if layout.roles is None else picked(layout.roles),
            one_segment=layout.one_segment,
        )
        hidden = torch.where(where[..., None], -1, layout.positions)
        return cls(index, own, replace(layout, positions=hidden, padding="mixed", lengths=None))

    def pick(self, t: Tensor) -> Tensor:
        """The entries of global tokens in (B or 1, T, …): (B or 1, G, …)."""
        return _picked(t, self.index)

    def put(self, part: Float[Tensor, "B G H E"], whole: Float[Tensor, "B T H E"]) -> Float[Tensor, "B T H E"]:
        """`whole` with the entries of global tokens replaced by `part`."""
        part = torch.where(self.layout.valid[:, :, None, None], part, self.pick(whole))
        return whole.scatter(1, self.index[:, :, None, None].expand_as(part), part)


def _most(chosen: Global, layout: Layout, where: Bool[Tensor, "B T"]) -> int:
    """The largest number of global tokens of a row, or an upper bound that the host knows without asking the device."""
    if chosen.first is None:
        return _counted(where) if layout.n_global is None else layout.n_global
    if layout.segments is None or layout.one_segment:
        return min(chosen.first, layout.shape[1])
    return _counted(where)  # the first of each document


@untraced  # the result determines shapes
def _counted(where: Bool[Tensor, "B T"]) -> int:
    return int(where.sum(1).max())


def _picked(t: Tensor, index: Int[Tensor, "B G"]) -> Tensor:
    rows = max(len(t), len(index))
    return t.expand(rows, *t.shape[1:])[torch.arange(rows, device=t.device)[:, None], index]
