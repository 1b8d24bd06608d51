"""Multi-head attention layers: projections around `attend`, for self- and cross-attention, MHA, GQA and MQA."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.layout import Layout
from ...core.spec import Cost
from ..kv_cache.full import AttentionState, CrossState, KeyValueState, LayerState, SlotTables
from ..kv_cache.kinds import CacheKind
from ..kv_cache.quantization import QuantizedKV
from ..layers.linear import together
from ..layers.low_rank import AttentionRanks, linear, matrix_size
from ..layers.norm import NoNorm, Norm
from ..patterns.algebra import parts_of
from ..patterns.basic import Causal, Full, Pattern
from ..positions.base import Bias
from .attend import AttendOptions
from .mixer import Mixer, Pass
from .scores import ScaledDot, Score
from .weighting import Softmax, Weighting


class Attention(Mixer, kind="attention"):
    """softmax(scale · QKᵀ + bias) V for each head, concatenated and projected (Vaswani et al. 2017, §3.2).

    `n_kv_heads` below `n_heads` is grouped-query attention, 1 multi-query. `d_head` is d_model / n_heads by default, and
    `d_value`, the width of values, is d_head. `bias` gives projections a bias; `out_bias` and `key_bias` override it for two
    of them (Whisper's keys have no bias). `scale` is 1/√d_head by default (T5: 1). `qk_norm` normalizes each head's
    queries and keys; with `qk_norm_over` "all", it normalizes all heads together (OLMo 2). `score` is another
    comparison of queries and keys (`attention.scores`); positions apply to the projections it compares. `weighting`
    turns scores into weights in place of the soft-max (`attention.weighting`). `sink` adds one logit whose share goes
    to no value, so a head may attend to nothing. It is "learned", one for each head (gpt-oss, OpenAI 2025), or "zero":
    softmax₁(x)_i = eˣⁱ / (1 + Σ eˣʲ) (Miller 2023, "Attention is off by one"). `pruned_heads` are the indices, among
    `n_heads`, of heads that were removed (`nn.pruning`). The others keep their width and their position bias; a
    key-value head without query heads is removed too. `low_rank` gives projections the rank of their factors, W = U V
    (`layers.low_rank`).

    `supports` lists what a kind built on this one supports: other "scores", other "weightings" and sinks, and independent
    "heads", which can be removed and divided over ranks. A kind with another module supports only what it declares.
    """

    n_heads: int = Field(gt=0)
    n_kv_heads: int | None = Field(default=None, gt=0)
    d_head: int | None = Field(default=None, gt=0)
    d_value: int | None = Field(default=None, gt=0)
    bias: bool = True
    out_bias: bool | None = None
    key_bias: bool | None = None
    pattern: Pattern = Full()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    scale: float | None = Field(default=None, gt=0)
    softcap: float | None = Field(default=None, gt=0)
    qk_norm: Norm = NoNorm()
    qk_norm_over: Literal["head", "all"] = "head"
    backend: str = "auto"
    score: Score = ScaledDot()
    weighting: Weighting = Softmax()
    sink: Literal["none", "zero", "learned"] = "none"
    pruned_heads: tuple[int, ...] = ()
    low_rank: AttentionRanks = AttentionRanks()

    adds_bias, keeps_keys = True, True
    divides: ClassVar[Literal["keys", "sums", "whole"]] = "keys"
    supports = frozenset({"scores", "weightings", "heads"})

    @model_validator(mode="after")
    def _comparable(self) -> Attention:
        if isinstance(self.score, ScaledDot):
            return self
        if "scores" not in self.supports:
            raise ValueError(f"{self.kind} has scaled dot products only; score={self.score.kind} is for attention")
        if self.scale is not None:
            raise ValueError(f"scale belongs to scaled dot products, but the score is {self.score.kind}; leave it out")
        return self

    @model_validator(mode="after")
    def _weighable(self) -> Attention:
        soft = isinstance(self.weighting, Softmax)
        if "weightings" not in self.supports and not (soft and self.sink == "none"):
            option = f"sink={self.sink}" if soft else f"weighting={self.weighting.kind}"
            raise ValueError(f"{self.kind} has its own weights; {option} is for attention")
        if self.sink != "none" and not soft:
            raise ValueError(f"sink belongs to the soft-max, but weighting is {self.weighting.kind}; leave it out")
        return self

    @model_validator(mode="after")
    def _heads_divide(self) -> Attention:
        if self.n_kv_heads is not None and self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}; "
                f"allowed: {', '.join(str(n) for n in range(1, self.n_heads + 1) if self.n_heads % n == 0)}"
            )
        return self

    @model_validator(mode="after")
    def _prunable(self) -> Attention:
        if not self.pruned_heads:
            return self
        if "heads" not in self.supports:
            raise ValueError(f"heads of {self.kind} can't be removed; pruned_heads is for attention")
        outside = next((h for h in self.pruned_heads if not 0 <= h < self.n_heads), None)
        if outside is not None or len(set(self.pruned_heads)) < len(self.pruned_heads):
            wrong = "names a head twice" if outside is None else f"names head {outside}"
            raise ValueError(
                f"pruned_heads are different indices from 0 to {self.n_heads - 1}; {list(self.pruned_heads)} {wrong}"
            )
        if len(self.pruned_heads) == self.n_heads:
            raise ValueError("pruned_heads names all heads; for a layer without attention, set the attention to none")
        sizes = sorted(set(self._group_sizes.values()))
        if len(sizes) > 1:
            raise ValueError(
                f"pruned_heads leaves {' and '.join(map(str, sizes))} query heads to key-value heads, which serve "
                "equally many; remove whole groups, or equally many heads of each"
            )
        if self.pattern.per_head:
            raise ValueError("pruned_heads is for patterns that are the same for all heads")
        if self.qk_norm_over == "all" and self.qk_norm.kind != "none":
            raise ValueError("qk_norm_over='all' normalizes all heads together, so none can be removed from it")
        return self

    @property
    def kept_heads(self) -> list[int]:
        """The indices of the heads that there are, among `n_heads`."""
        return [h for h in range(self.n_heads) if h not in self.pruned_heads]

    @property
    def kept_groups(self) -> list[int]:
        """The indices of the key-value heads that there are, among `n_kv_heads`."""
        return sorted(self._group_sizes)

    @property
    def _group_sizes(self) -> Counter[int]:
        """Number of query heads of each key-value head that there is."""
        size = self.n_heads // (self.n_kv_heads or self.n_heads)
        return Counter(h // size for h in self.kept_heads)

    def widths(self, d_model: int) -> tuple[int, int, int, int]:
        """(H, K, D, E), without the heads that were removed."""
        d_head = self.d_head or head_width(d_model, self.n_heads)
        h, k = self.n_heads, self.n_kv_heads or self.n_heads
        if self.pruned_heads:
            h, k = len(self.kept_heads), len(self.kept_groups)
        return h, k, d_head, self.d_value or d_head

    def heads(self, d_model: int) -> tuple[int, int]:
        d_head = self.d_head or head_width(d_model, self.n_heads)
        return self.n_heads, self.score.width(d_head)

    def remembers(self) -> int | None:
        return reach_of(self.pattern)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return KeyValueState(slot_tables[self.remembers()], capacity)

    def held(self, how: CacheKind, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        if not self.keeps_keys:
            return super().held(how, slot_tables, capacity)
        size = self.remembers()
        if size is None:
            how.check_pattern(self.pattern)
        return (how if size is None else how.windowed).state(slot_tables, size, capacity)

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        return MultiHeadAttention(self, d_model, cross, name)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """`tokens` queries, `pairs` (query, key) pairs; `memory` tokens are projected to keys in cross-attention."""
        h, k, d, e = self.widths(d_model)
        ranks = self.low_rank
        queries, out = matrix_size(d_model, h * d, ranks.q), matrix_size(h * e, d_model, ranks.out)
        keys = matrix_size(d_model, k * d, ranks.k) + matrix_size(d_model, k * e, ranks.v)
        biases = (h * d + k * e) * self.bias + k * d * self._key_bias + d_model * self._out_bias
        flops = 2 * ((queries + out) * tokens + keys * (memory or tokens)) + 2 * pairs * h * (self.score.width(d) + e)
        normed = (h * d, k * d) if self.qk_norm_over == "all" else (d, d)
        more = sum(self.qk_norm.cost(width).parameters for width in normed) + h * (self.sink == "learned")
        return Cost(queries + keys + out + biases + more, flops) + self.score.cost(d, d, h, k, tokens, memory or tokens)

    @property
    def _key_bias(self) -> bool:
        return self.bias if self.key_bias is None else self.key_bias

    @property
    def _out_bias(self) -> bool:
        return self.bias if self.out_bias is None else self.out_bias


def reach_of(pattern: Pattern) -> int | None:
    """How many of the last tokens a decoding step with a causal pattern needs; None for all."""
    return pattern.reach if Causal in map(type, parts_of(pattern)) else None


def head_width(d_model: int, n_heads: int) -> int:
    """d_model / n_heads. Raises ValueError if that is not whole."""
    if d_model % n_heads:
        allowed = ", ".join(str(n) for n in range(1, min(d_model, 128) + 1) if d_model % n == 0)
        raise ValueError(f"n_heads={n_heads} does not divide d_model={d_model}; allowed: {allowed}; or give d_head")
    return d_model // n_heads


class MultiHeadAttention(nn.Module):
    """The module of `Attention`. Parameters: q, k, v (H·D, K·D, K·E rows), out, and `sinks` (H) if they are learned."""

    has_weights: ClassVar[bool] = True  # whether it computes a weight for each pair of tokens
    sinks: Tensor | None

    def __init__(self, spec: Attention, d_model: int, cross: bool, name: str) -> None:
        super().__init__()
        if not cross:
            spec.pattern.warn_if_fully_masked()
        self.n_heads, self.n_kv_heads, self.d_head, self.d_value = h, kv, d, e = spec.widths(d_model)
        self.cross, self.name = cross, name
        self.kept_heads = tuple(spec.kept_heads) if spec.pruned_heads else None
        self.pattern, self.scale, self.softcap = spec.pattern, spec.scale, spec.softcap
        self.dropout, self.backend = spec.dropout, spec.backend
        self.score = None if isinstance(spec.score, ScaledDot) else spec.score.module(d, d, h, kv)
        self.weighting = None if isinstance(spec.weighting, Softmax) else spec.weighting
        if spec.sink == "learned":
            self.sinks = nn.Parameter(torch.zeros(h))
        else:
            self.register_buffer("sinks", None if spec.sink == "none" else torch.zeros(h), persistent=False)
        ranks = spec.low_rank
        self.q = linear(d_model, h * d, spec.bias, ranks.q, into_scores=d)
        self.k = linear(d_model, kv * d, spec._key_bias, ranks.k)
        self.v = linear(d_model, kv * e, spec.bias, ranks.v)
        self.out = linear(h * e, d_model, spec._out_bias, ranks.out, into_residual=True)
        self.norms_all = spec.qk_norm_over == "all"
        self.q_norm = spec.qk_norm.module(h * d if self.norms_all else d)
        self.k_norm = spec.qk_norm.module(kv * d if self.norms_all else d)

    def forward(
        self, x: Float[Tensor, "B T M"], run: Pass, state: AttentionState | CrossState | None = None
    ) -> Float[Tensor, "B T M"]:
        return self.out(self.mixed(x, run, run.layout, state).flatten(-2))

    def mixed(
        self, x: Float[Tensor, "B T M"], run: Pass, layout: Layout, state: AttentionState | CrossState | None = None
    ) -> Float[Tensor, "B T H E"]:
        """The outputs of the heads, before `out`; `layout` is that of the queries."""
        projected = [self.q(x)] if self.cross else together(x, self.q, self.k, self.v)
        q = self.normed(projected[0], self.q_norm)
        if self.score is not None:
            q = self.score.queries(q)
        if self.cross:
            k, v, kv_layout = self._memory(run, state)
            return run.attend(q, k, v, clean=state is not None, **self.options(run, layout, kv_layout, None))
        q, (k, v) = run.rotate_queries(q), self._heads_of(*projected[1:])
        if state is None:
            return run.attend(q, run.rotate_keys(k), v, **self.options(run, layout, run.layout, run.bias))
        keys, values = self._remembered(k, v, run, state)
        options = self.options(run, layout, state.layout, run.bias)
        return run.attend(q, keys, values, clean=True, observe=getattr(state, "observe", None), **options)

    @staticmethod
    def _remembered(
        k: Float[Tensor, "B T K D"], v: Float[Tensor, "B T K E"], run: Pass, state: AttentionState | CrossState
    ) -> tuple[Tensor | QuantizedKV, Tensor | QuantizedKV]:
        """Keys and values of all tokens in the cache, including these, with rotary positions applied to keys."""
        if not state.unrotated:
            return state.append(*clear_padding(run.layout, run.rotate_keys(k), v))
        keys, values = state.append(*clear_padding(run.layout, k, v))
        assert isinstance(keys, Tensor)
        about = (state.layout, run.position)
        tables = run.plan.once("tables", about, lambda: run.position.tables(state.layout))
        return keys if tables is None else run.position.rotate_keys(keys, tables), values

    def options(self, run: Pass, layout: Layout, kv_layout: Layout, bias: Tensor | Bias | None) -> AttendOptions:
        """The options of `attend` for queries and keys of these layouts, given the bias of positions."""
        if self.kept_heads is not None and isinstance(bias, Bias):
            bias = bias.of_heads(self.kept_heads)
        return {
            "pattern": self.pattern,
            "layout": layout,
            "kv_layout": kv_layout,
            "bias": bias,
            "scale": self.scale if self.score is None else self.score.scale,
            "dropout": self.dropout if self.training else 0.0,
            "softcap": self.softcap,
            "backend": self.backend,
            "plan": run.plan,
            "name": self.name,
            "score": None if self.score is None else self.score.comparison(),
            "weighting": self.weighting,
            "sinks": self.sinks,
        }

    def normed(self, x: Float[Tensor, "B T HD"], norm: nn.Module) -> Float[Tensor, "B T H D"]:
        """Queries or keys split into heads and normalized, each head separately or all together."""
        split = (-1, self.d_head)
        return norm(x).unflatten(-1, split) if self.norms_all else norm(x.unflatten(-1, split))

    def _keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._heads_of(*together(x, self.k, self.v))

    def _heads_of(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Projected keys and values, split into heads; keys normalized, and as the score compares them."""
        k = self.normed(k, self.k_norm)
        k = k if self.score is None else self.score.keys(k)
        return k, v.unflatten(-1, (-1, self.d_value))

    def _memory(self, run: Pass, state: AttentionState | CrossState | None) -> tuple[Tensor, Tensor, Layout]:
        """The encoder's keys and values: from the state if there is one, else projected here."""
        if isinstance(state, CrossState):
            return *state.keys_values, state.layout
        assert run.memory is not None and run.memory_layout is not None, "cross-attention needs an encoder's output"
        return *self._keys_values(run.memory), run.memory_layout

    def remember(self, memory: Float[Tensor, "B S M"], layout: Layout, state: CrossState) -> None:
        """Project an encoder's output once, for every step that follows."""
        keys, values = clear_padding(layout, *self._keys_values(memory))
        state.fill(keys, values, layout)


def clear_padding(layout: Layout, *tensors: Float[Tensor, "B T H D"]) -> tuple[Tensor, ...]:
    """Zero padded tokens, so they enter a cache as zeros and need not be cleared again."""
    if layout.padding == "none":
        return tensors
    hidden = ~layout.valid[:, :, None, None]
    return tuple(x.masked_fill(hidden, 0.0) for x in tensors)
