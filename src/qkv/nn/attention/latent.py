"""Multi-head latent attention (DeepSeek-V2, 2024): keys and values of all heads are projected from one small vector."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from ...core.layout import Layout
from ...core.spec import Cost
from ..kv_cache.full import KeyValueState, SlotTables
from ..layers.linear import Linear, matrix
from ..layers.norm import Norm, RMSNorm
from ..patterns.basic import Pattern, causal
from .mixer import Mixer, Pass, refuse_crossing
from .multi_head import clear_padding, reach_of

Queries = Float[Tensor, "B T H D+R"]
Latents = Float[Tensor, "B S 1 N"]
Outputs = Float[Tensor, "B T H E"]


class LatentAttention(Mixer, kind="latent-attention"):
    """Attention whose keys and values are compressed (DeepSeek-V2, 2024, §2.1). For each token, with heads i = 1 … H,

        c = norm(W_dkv x),           k_r = turn(W_kr x),                        (d_latent and d_rotary wide)
        k_i = [W_uk,i c ; k_r],      v_i = W_uv,i c,                            (d_head + d_rotary, and d_value wide)
        q_i = [W_q,i y ; turn(W_qr,i y)],   y = x, or norm(W_dq x) of width `d_query`,
        out = W_o [softmax(scale · q_i Kᵢᵀ) V_i]_i,      scale = 1/√(d_head + d_rotary) by default.

    Rotary positions (turn) apply only to the d_rotary coordinates, which the keys of all heads share. **The cache has c
    and k_r**: (d_latent + d_rotary) numbers a token, whatever the number of heads. Since q · (W_uk c) = (W_ukᵀ q) · c, a
    decoding step needs no keys or values of the heads: it is multi-query attention with keys [c ; k_r] and values c, before
    W_uv.

    `n_heads`, `d_head` … are the paper's n_h, d_h, d_h^R, d_c, d_c'. No projection has a bias.
    """

    n_heads: int = Field(gt=0)
    d_head: int = Field(default=128, gt=0)
    d_rotary: int = Field(default=64, ge=0)
    d_latent: int = Field(default=512, gt=0)
    d_query: int | None = Field(default=None, gt=0)
    d_value: int | None = Field(default=None, gt=0)
    norm: Norm = RMSNorm()
    pattern: Pattern = causal()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    scale: float | None = Field(default=None, gt=0)
    backend: str = "auto"

    adds_bias = True

    def heads(self, d_model: int) -> tuple[int, int]:
        """Heads, and the width to which positions apply."""
        return self.n_heads, self.d_rotary

    @property
    def numbers_per_token(self) -> int:
        """Numbers in the cache for each token and layer."""
        return self.d_latent + self.d_rotary

    def remembers(self) -> int | None:
        return reach_of(self.pattern)

    def state(self, slot_tables: SlotTables, capacity: int | None = None) -> LatentState:
        return LatentState(slot_tables[self.remembers()], capacity)

    def state_parts(self, d_model: int, tokens: int, itemsize: int) -> dict[str, int] | None:
        kept = min(tokens, self.remembers() or tokens)
        return {"keys and values": kept * self.numbers_per_token * itemsize}

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        refuse_crossing(self, cross)
        return MultiHeadLatentAttention(self, d_model, name)

    def cost(self, d_model: int, tokens: int = 0, pairs: int = 0, memory: int = 0) -> Cost:
        """Cost of the expanded form used in training, with the keys and values of every head."""
        h, d, r, c, e = self.n_heads, self.d_head, self.d_rotary, self.d_latent, self.d_value or self.d_head
        queries = h * (d + r) * (self.d_query or d_model) + (self.d_query or 0) * d_model
        matrices = queries + d_model * (c + r) + c * h * (d + e) + h * e * d_model
        total = Cost(matrices, 2 * matrices * tokens + 2 * pairs * h * (d + r + e)) + self.norm.cost(c, tokens)
        return total if self.d_query is None else total + self.norm.cost(self.d_query, tokens)


class LatentState(KeyValueState):
    """[c ; k_r] of every token, in the slots of its table, stored as the keys of one head."""

    def remember(self, latent: Float[Tensor, "B T 1 N"]) -> Float[Tensor, "B S 1 N"]:
        """Add the tokens that the slot table admitted last; returns all tokens to attend to."""
        return self.append(latent, latent[..., :0])[0]


class MultiHeadLatentAttention(nn.Module):
    """The module of `LatentAttention`. Parameters: q (or q_down, q_norm and q_up), kv_down, kv_norm, k_rotary, k_up, v_up,
    out."""

    has_weights: ClassVar[bool] = True

    def __init__(self, spec: LatentAttention, d_model: int, name: str) -> None:
        super().__init__()
        h, d, r, c, e = spec.n_heads, spec.d_head, spec.d_rotary, spec.d_latent, spec.d_value or spec.d_head
        self.n_heads, self.d_head, self.d_rotary, self.d_latent, self.d_value = h, d, r, c, e
        self.pattern, self.dropout, self.backend, self.name = spec.pattern, spec.dropout, spec.backend, name
        self.scale = spec.scale or 1 / math.sqrt(d + r)
        self.low_rank = spec.d_query is not None
        if spec.d_query is not None:
            self.q_down = Linear(d_model, spec.d_query, bias=False)
            self.q_norm = spec.norm.module(spec.d_query)
            self.q_up = Linear(spec.d_query, h * (d + r), bias=False, into_scores=d + r)
        else:
            self.q = Linear(d_model, h * (d + r), bias=False, into_scores=d + r)
        self.kv_down = Linear(d_model, c, bias=False)
        self.kv_norm = spec.norm.module(c)
        self.k_rotary = Linear(d_model, r, bias=False)
        self.k_up = Linear(c, h * d, bias=False)
        self.v_up = Linear(c, h * e, bias=False)
        self.out = Linear(h * e, d_model, bias=False, into_residual=True)

    def forward(self, x: Float[Tensor, "B T M"], run: Pass, state: LatentState | None = None) -> Float[Tensor, "B T M"]:
        q, latent = self._queries(x, run), self._latent(x, run)
        if state is None:
            return self.out(self.expanded(q, latent, run, run.layout).flatten(-2))
        latent = state.remember(*clear_padding(run.layout, latent))
        form = self.absorbed if self.absorbs(q.shape[1], latent.shape[1]) else self.expanded
        return self.out(form(q, latent, run, state.layout, clean=True).flatten(-2))

    def _queries(self, x: Float[Tensor, "B T M"], run: Pass) -> Float[Tensor, "B T H D+R"]:
        q = self.q_up(self.q_norm(self.q_down(x))) if self.low_rank else self.q(x)
        plain, turned = q.unflatten(-1, (self.n_heads, -1)).split([self.d_head, self.d_rotary], -1)
        return torch.cat([plain, run.rotate_queries(turned)], -1)

    def _latent(self, x: Float[Tensor, "B T M"], run: Pass) -> Float[Tensor, "B T 1 N"]:
        """[c ; k_r]."""
        return torch.cat([self.kv_norm(self.kv_down(x))[:, :, None], run.rotate_keys(self.k_rotary(x)[:, :, None])], -1)

    def absorbs(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form takes fewer FLOPs than computing the keys and values of the heads.

        An exported graph (`qkv.runs.export`) serves every length, so it has the form that is faster in decoding.
        """
        if torch.compiler.is_exporting():
            return True
        c, e = self.d_latent, self.d_head + self.d_value
        return queries * keys * (2 * c - e) + queries * c * e < keys * c * e

    def expanded(self, q: Queries, latent: Latents, run: Pass, kv_layout: Layout, clean: bool = False) -> Outputs:
        """Attention with the keys and values of every head."""
        c, k_rotary = latent.split([self.d_latent, self.d_rotary], -1)
        k = self.k_up(c[:, :, 0]).unflatten(-1, (self.n_heads, -1))
        k = torch.cat([k, k_rotary.expand(-1, -1, self.n_heads, -1)], -1)
        v = self.v_up(c[:, :, 0]).unflatten(-1, (self.n_heads, -1))
        return self._attend(q, k, v, run, kv_layout, clean)

    def absorbed(self, q: Queries, latent: Latents, run: Pass, kv_layout: Layout, clean: bool = False) -> Outputs:
        """The same result, with W_uk absorbed into the queries and W_uv into the output."""
        plain, turned = q.split([self.d_head, self.d_rotary], -1)
        into = torch.einsum("bthd,hdc->bthc", plain, matrix(self.k_up).unflatten(0, (self.n_heads, -1)))
        seen = self._attend(torch.cat([into, turned], -1), latent, latent[..., : self.d_latent], run, kv_layout, clean)
        return torch.einsum("bthc,hec->bthe", seen, matrix(self.v_up).unflatten(0, (self.n_heads, -1)))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, run: Pass, kv_layout: Layout, clean: bool) -> Tensor:
        return run.attend(
            q,
            k,
            v,
            pattern=self.pattern,
            layout=run.layout,
            kv_layout=kv_layout,
            bias=run.bias,
            scale=self.scale,
            dropout=self.dropout if self.training else 0.0,
            backend=self.backend,
            plan=run.plan,
            clean=clean,
            name=self.name,
        )
