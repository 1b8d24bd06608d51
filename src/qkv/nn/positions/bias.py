"""Relative position biases on attention scores: ALiBi and T5's relative position buckets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ...core.layout import View
from .base import Bias, Position, PositionModule, Widths


class ALiBi(Position, kind="alibi"):
    """Scores decrease with distance: s(q, k) − m_h · |q − k|, one slope m_h for each head (Press et al. 2022).

    For n = 2^a heads the slopes are 2^(−max·1/n), 2^(−max·2/n) … with max = `bias_max` = 8; for other n, the slopes of
    the next lower power of two, then every second slope of the next higher power, as in the paper's code.

    `scale` multiplies all slopes (Falcon: 1/√d_head). With `precision` "bfloat16", m_h, positions p and m_h · p are rounded
    to bfloat16 before differences are taken, as Falcon was trained.
    """

    bias_max: float = Field(default=8.0, gt=0)
    scale: float = Field(default=1.0, gt=0)
    precision: Literal["float32", "bfloat16"] = "float32"

    def slopes(self, n_heads: int) -> list[float]:
        """Return m_h for each head."""

        def geometric(n: int) -> list[float]:
            return [2.0 ** (-self.bias_max * (i + 1) / n) for i in range(n)]

        below = 1 << (n_heads.bit_length() - 1)
        return geometric(below) + geometric(2 * below)[0::2][: n_heads - below]

    def module(self, widths: Widths) -> PositionModule:
        return ALiBiBias(self, widths.n_heads)

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        slopes = tensors[0][:, None, None]
        if self.precision == "float32":
            return -self.scale * slopes * (q.position - k.position).abs().to(slopes.dtype).unsqueeze(-3)
        q_term, k_term = (slopes.bfloat16() * p.bfloat16().unsqueeze(-3) for p in (q.position, k.position))
        return -self.scale * (q_term.to(slopes.dtype) - k_term.to(slopes.dtype)).abs()

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        return (None,)  # the slopes are not trained

    def tensors_of_heads(self, tensors: tuple[Tensor, ...], heads: Sequence[int]) -> tuple[Tensor, ...]:
        return (tensors[0][list(heads)],)


class ALiBiBias(PositionModule):
    """The module of `ALiBi`. Slopes are computed from the spec in each pass and not saved."""

    def __init__(self, spec: ALiBi, n_heads: int) -> None:
        super().__init__()
        self.spec, self.slopes = spec, spec.slopes(n_heads)

    def bias(self, device: torch.device | None = None) -> Bias:
        return Bias(self.spec, (torch.tensor(self.slopes, dtype=torch.float32, device=device),))


class T5Buckets(Position, kind="t5"):
    """A learned bias for each head and bucket of relative positions k − q (Raffel et al. 2020, §2.1).

    Half of the buckets hold a single distance each, the others grow logarithmically up to `max_distance`, and larger
    distances share the last. Bidirectional buckets are split between past and future; None takes the stack's direction.
    Layers whose schemes are equal share a table; those that differ in `table` have their own (UMT5).
    """

    buckets: int = Field(default=32, ge=4)
    max_distance: int = Field(default=128, ge=2)
    bidirectional: bool | None = None
    table: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _room_to_widen(self) -> T5Buckets:
        single = self.buckets // 2 if self.bidirectional is False else self.buckets // 4
        if self.max_distance <= single:
            raise ValueError(f"max_distance={self.max_distance} has to be above the {single} single-distance buckets")
        return self

    def module(self, widths: Widths) -> PositionModule:
        spec = self if self.bidirectional is not None else self.replace(bidirectional=widths.bidirectional)
        return T5Bias(spec, widths)

    def n_parameters(self, widths: Widths) -> int:
        return self.buckets * widths.n_heads

    def bucket(self, relative: Tensor) -> Tensor:
        """Return the bucket indices of relative positions k − q."""
        count = self.buckets
        first = torch.zeros_like(relative)
        if self.bidirectional is not False:
            count //= 2
            first = (relative > 0).long() * count
            distance = relative.abs()
        else:
            distance = (-relative).clamp(min=0)
        exact = count // 2
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(self.max_distance / exact) * (count - exact)
        far = (exact + far.long()).clamp(max=count - 1)
        return first + torch.where(distance < exact, distance, far)

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        bucket = self.bucket(k.position - q.position)
        return nn.functional.embedding(bucket, tensors[0]).movedim(-1, -3)

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        bucket = self.bucket(k.position - q.position).flatten()
        rows = grad.sum_to_size(bucket.numel() // (grad.shape[-1] * grad.shape[-2]), *grad.shape[1:])
        rows = rows.movedim(-3, -1).reshape(len(bucket), -1)
        return (torch.zeros_like(tensors[0]).index_add_(0, bucket, rows.to(tensors[0].dtype)),)

    def tensors_of_heads(self, tensors: tuple[Tensor, ...], heads: Sequence[int]) -> tuple[Tensor, ...]:
        return (tensors[0][:, list(heads)],)


class T5Bias(PositionModule):
    """The module of `T5Buckets`; `weight` is (buckets, n_heads)."""

    def __init__(self, spec: T5Buckets, widths: Widths) -> None:
        super().__init__()
        self.spec, self.d_model = spec, widths.d_model
        self.weight = nn.Parameter(torch.empty(spec.buckets, widths.n_heads))

    def bias(self, device: torch.device | None = None) -> Bias:
        return Bias(self.spec, (self.weight,))
