"""Linear attention as a layer (Katharopoulos et al. 2020): a feature map of queries and keys in place of a soft-max."""

from __future__ import annotations

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn

from ..core.layout import Layout
from ..core.spec import Cost
from ..kv_cache.full import LayerState, SlotTables
from ..patterns.basic import And, Causal, Documents, Full
from .feature_maps import Elu1, FeatureMap, Features
from .mechanisms.linear import LinearState, linear_attention
from .multi_head import Attention, MultiHeadAttention, Pass


class LinearAttention(Attention, kind="linear-attention"):
    """φ(Q) (φ(K)ᵀ V) / φ(Q) Σ φ(K) for each head, φ being `features` of √scale · q and √scale · k.

    `scale` is 1 by default, and 1/√d_head for features that stand for a soft-max. The pattern is full or causal; documents
    are kept apart in any case. Rotary positions turn queries and keys before φ. Decoding remembers K · R · (E + 1) numbers
    a row, however long it is.
    """

    features: FeatureMap = Elu1()

    adds_bias = False

    @model_validator(mode="after")
    def _without_weights(self) -> LinearAttention:
        refuse_options(self, "dropout", "softcap", "backend")
        parts = self.pattern.parts if isinstance(self.pattern, And) else (self.pattern,)
        if not all(isinstance(part, Full | Causal | Documents) for part in parts):
            raise ValueError(
                f"{self.kind} sums over all keys, or over all up to the query: its pattern is full() or causal(), not "
                f"{self.pattern}; for other patterns take attention"
            )
        return self

    @property
    def causal(self) -> bool:
        parts = self.pattern.parts if isinstance(self.pattern, And) else (self.pattern,)
        return any(isinstance(part, Causal) for part in parts)

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadLinearAttention(self, d_model, name)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        if not self.causal:
            raise ValueError(
                f"{self.kind} decodes with pattern=causal(); with {self.pattern} it needs the whole sequence"
            )
        return LinearState()

    def state_nbytes(self, d_model: int) -> int:
        """Bytes that a row's state holds in one layer: sums, and where features have logs the largest of each head."""
        _, k, d, e = self.widths(d_model)
        return 4 * k * (self.features.width(d) * (e + 1) + self.features.has_log)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """4 · T · R · (E + 1) for each head where K = H: sums over keys, and what queries make of them."""
        h, k, d, e = self.widths(d_model)
        mapped = (h + k) * (self.features.flops(d) + 2 * self.features.width(d) * (e + 1))
        return super().cost(d_model, tokens) + Cost(0, tokens * mapped)


def refuse_options(spec: Attention, *names: str) -> None:
    """Raise ValueError for options of attention that its mechanism has no place for."""
    given = [name for name in names if getattr(spec, name) != type(spec).model_fields[name].default]
    if given:
        raise ValueError(f"{given[0]} belongs to attention, and {spec.kind} has no place for it; leave it out")


def refuse_crossing(spec: Attention, cross: bool) -> None:
    """Raise ValueError where queries and keys would be of two sequences."""
    if cross:
        raise ValueError(f"{spec.kind} is of a sequence that looks at itself; to cross, take attention")


def refuse_bias(kind: str, run: Pass) -> None:
    """Raise ValueError where positions are said by what is added to scores."""
    if run.bias is not None:
        raise ValueError(
            f"{kind} has no scores of token pairs that {run.bias.scheme} could be added to; positions that work are "
            "none, sinusoidal, learned and rotary"
        )


class MultiHeadLinearAttention(MultiHeadAttention):
    """The module of `LinearAttention`. Parameters as in attention; what features draw is the buffer `directions`."""

    directions: Tensor | None

    def __init__(self, spec: LinearAttention, d_model: int, name: str) -> None:
        super().__init__(spec, d_model, cross=False, name=name)
        self.kind, self.features, self.causal = spec.kind, spec.features, spec.causal
        scale = spec.features.scale(self.d_head) if spec.scale is None else spec.scale
        self.root = scale**0.5
        drawn, here = spec.features.directions(self.d_head, name), torch.empty(()).device
        self.register_buffer("directions", None if drawn is None else drawn.to(here))

    def mixed(
        self, x: Float[Tensor, "B T M"], run: Pass, layout: Layout, state: LayerState | None = None
    ) -> Float[Tensor, "B T H E"]:
        refuse_bias(self.kind, run)
        q = self.q_norm(self.q(x).unflatten(-1, (self.n_heads, self.d_head)))
        k, v = self._keys_values(x)
        if run.tables is not None:
            q, k = run.position.rotate(q, run.tables), run.position.rotate(k, run.tables)
        assert state is None or isinstance(state, LinearState)
        with torch.autocast(x.device.type, enabled=False):
            return linear_attention(self._mapped(q), self._mapped(k), v, layout, self.causal, state)

    def _mapped(self, x: Float[Tensor, "B T H D"]) -> Features:
        wide = torch.promote_types(x.dtype, torch.float32)
        return self.features.features(x.to(wide) * self.root, self.directions)
