"""Reformer's attention as a layer (Kitaev et al. 2020): one projection for queries and keys, and buckets that meet."""

from __future__ import annotations

from jaxtyping import Float
from pydantic import Field, field_validator
from torch import Tensor, nn

from ..core.spec import Cost
from ..kv_cache.full import KeyValueState, LayerState, SlotTables
from ..layers.linear import Linear
from ..patterns.basic import And, Causal, Documents, Full, Pattern
from .linear import refuse_bias
from .mechanisms import lsh
from .multi_head import Mixer, Pass


class LSHAttention(Mixer, kind="lsh-attention"):
    """Attention among tokens that a random hash puts into one of `buckets`, in one of several `rounds`, by chunks
    (`attention.mechanisms.lsh` has the equations). Time grows as T log T, memory as T.

    More rounds come nearer to shared-QK attention over all tokens, at a cost that grows with them. About 2 · T / `chunk`
    buckets are as many as the paper has. Rows of at most `chunk` tokens are exact, and all rows are with `chunk` null.
    Rotations are drawn anew in every pass of training, from PyTorch's generator; in evaluation they follow from `seed`
    and the layer's name. **Decoding attends to all cached tokens exactly**, so for contexts beyond a chunk its numbers are
    those of `chunk` null, and not those of an evaluation by buckets.

    The pattern is full or causal; documents are kept apart in any case. Rotary positions turn what is hashed.
    """

    n_heads: int = Field(gt=0)
    d_head: int | None = Field(default=None, gt=0)
    d_value: int | None = Field(default=None, gt=0)
    bias: bool = False
    pattern: Pattern = Full()
    buckets: int = Field(default=64, gt=0)
    rounds: int = Field(default=4, gt=0)
    chunk: int | None = Field(default=64, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    seed: int = 0

    @field_validator("buckets")
    @classmethod
    def _pairs_of_directions(cls, buckets: int) -> int:
        if buckets % 2:
            raise ValueError(f"a direction and its opposite are two buckets, so their number is even, not {buckets}")
        return buckets

    @field_validator("pattern")
    @classmethod
    def _full_or_causal(cls, pattern: Pattern) -> Pattern:
        if not all(isinstance(part, Full | Causal | Documents) for part in _parts(pattern)):
            raise ValueError(f"it is full() or causal(), as buckets say the rest, not {pattern}; or take attention")
        return pattern

    @property
    def causal(self) -> bool:
        return any(isinstance(part, Causal) for part in _parts(self.pattern))

    def widths(self, d_model: int) -> tuple[int, int, int]:
        """(H, D, E)."""
        if self.d_head is None and d_model % self.n_heads:
            raise ValueError(
                f"n_heads={self.n_heads} does not divide d_model={d_model}; take one that does, or give d_head"
            )
        d_head = self.d_head or d_model // self.n_heads
        return self.n_heads, d_head, self.d_value or d_head

    def heads(self, d_model: int) -> tuple[int, int]:
        return self.widths(d_model)[:2]

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LayerState:
        return KeyValueState(slot_tables[None], capacity)

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        if cross:
            raise ValueError("shared queries and keys are of a sequence that looks at itself; to cross, take attention")
        return MultiHeadLSHAttention(self, d_model, name)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """Beyond a chunk, pairs are those that are computed: every slot of a chunk with two chunks, in each round."""
        h, d, e = self.widths(d_model)
        projections = d_model * h * (d + e) + h * e * d_model
        biases = (h * (d + e) + d_model) * self.bias
        if self.chunk is None or tokens <= self.chunk:
            met, hashing = pairs, 0
        else:
            met = self.rounds * -(-tokens // self.chunk) * self.chunk * 2 * self.chunk
            hashing = tokens * h * d * self.rounds * self.buckets
        return Cost(projections + biases, 2 * projections * tokens + 2 * met * h * (d + e) + hashing)


def _parts(pattern: Pattern) -> tuple[Pattern, ...]:
    return pattern.parts if isinstance(pattern, And) else (pattern,)


class MultiHeadLSHAttention(nn.Module):
    """The module of `LSHAttention`. Parameters: qk, v (H·D, H·E rows) and out."""

    def __init__(self, spec: LSHAttention, d_model: int, name: str) -> None:
        super().__init__()
        self.n_heads, self.d_head, self.d_value = h, d, e = spec.widths(d_model)
        self.causal, self.chunk, self.dropout, self.name = spec.causal, spec.chunk, spec.dropout, name
        self.drawing = (h, d, spec.rounds, spec.buckets)
        self.seed = f"{spec.seed} {name}"
        self.qk = Linear(d_model, h * d, spec.bias)
        self.v = Linear(d_model, h * e, spec.bias)
        self.out = Linear(h * e, d_model, spec.bias, into_residual=True)

    def forward(
        self, x: Float[Tensor, "B T M"], run: Pass, state: KeyValueState | None = None
    ) -> Float[Tensor, "B T M"]:
        refuse_bias("lsh-attention", run)
        qk, v = self.qk(x).unflatten(-1, (-1, self.d_head)), self.v(x).unflatten(-1, (-1, self.d_value))
        if run.tables is not None:
            qk = run.position.rotate(qk, run.tables)
        if state is None and self.chunk is not None and x.shape[1] > self.chunk:
            mixed = self._by_chunks(qk, v, run, self.chunk)
        else:
            mixed = self._exact(qk, v, run, state)
        return self.out(mixed.flatten(-2))

    def _by_chunks(self, qk: Tensor, v: Tensor, run: Pass, chunk: int) -> Float[Tensor, "B T H E"]:
        if self.training:
            rotations = lsh.draw_rotations(*self.drawing, like=qk)
        else:
            rotations = lsh.fixed_rotations(*self.drawing, like=qk, seed=self.seed)
        p = self.dropout if self.training else 0.0
        return lsh.lsh_attention(qk, v, rotations, layout=run.layout, chunk=chunk, causal=self.causal, dropout=p)

    def _exact(self, qk: Tensor, v: Tensor, run: Pass, state: KeyValueState | None) -> Float[Tensor, "B T H E"]:
        if run.layout.padding != "none":
            hidden = ~run.layout.valid[..., None, None]
            qk, v = qk.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0)
        own, k, kv_layout = v, lsh.unit(qk), run.layout
        if state is not None:
            k, v = state.append(k, v)
            kv_layout = state.layout
        return lsh.exact(
            qk,
            k,
            v,
            own,
            layout=run.layout,
            kv_layout=kv_layout,
            causal=self.causal,
            dropout=self.dropout if self.training else 0.0,
            plan=run.plan,
            clean=True,
            name=self.name,
        )
