"""Launches the Triton kernels: pointers, strides and compile-time constants."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .block_map import Tiles
from .kernels import backward, forward
from .kernels.language import tl
from .setting import BUCKETS, DENSE, NONE, KernelSetting


class BiasTensors(NamedTuple):
    """Slopes (H,); or buckets' numbers (buckets, H) and the bucket of each distance −reach … reach; or the bias itself."""

    numbers: Tensor
    buckets: Tensor


Strides = tuple[int, ...]


class KernelInputs(NamedTuple):
    """What all kernels of a call read, besides their own tensors."""

    q: Tensor
    k: Tensor
    v: Tensor
    tiles: Tiles
    bias: BiasTensors
    seed: Tensor
    q_strides: Strides  # of batch rows, tokens and heads
    k_strides: Strides
    v_strides: Strides
    bias_strides: Strides
    t: int
    s: int
    n_q: int  # tiles of queries, and of keys
    n_k: int
    reach: int  # the largest distance with a bucket of its own
    scale: float
    softcap: float
    dropout: float


class Constants(NamedTuple):
    """What kernels are compiled for; names as in the kernels."""

    M: int  # queries and keys of a tile
    N: int
    H: int  # heads, and how many of them share a key-value head
    G: int
    D: int  # widths of keys and of values, and both padded
    E: int
    DP: int
    EP: int
    PRECISION: str
    CAP: bool
    DROPOUT: bool = False
    BIAS: int = NONE
    BOXES: int = 0
    SEGMENTS: bool = False
    PER_HEAD: bool = False
    MAPS: bool = False  # whether batch rows have their own block maps

    def for_kernels(self) -> Constants:
        """The same numbers as Triton's compile-time constants."""
        return Constants(*(tl.constexpr(value) for value in self))


class Launch:
    """One call's kernels, forward or backward."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: list[Tensor],
        tiles: list[Tensor],
        setting: KernelSetting,
        numbers: list[float],
        seed: Tensor,
    ) -> None:
        q, k, v = (rows(x) for x in (q, k, v))
        self.batch, t, self.heads, d = q.shape
        s, self.kv_heads, e = k.shape[1], k.shape[2], v.shape[3]
        self.setting, self.scores = setting, (self.batch, self.heads, t, s)
        (scale, softcap, dropout), fields = numbers, Tiles(*tiles)
        added = bias[0] if bias else q
        buckets = bias[1] if setting.bias == BUCKETS else added
        per_row = fields.columns.shape[0] > 1
        self.problem = KernelInputs(
            *(q, k, v, fields, BiasTensors(added, buckets), seed),
            *(q.stride()[:3], k.stride()[:3], v.stride()[:3]),
            added.expand(self.scores).stride() if setting.bias == DENSE else (0, 0, 0, 0),
            *(t, s, fields.columns.shape[1], fields.columns.shape[2]),
            buckets.shape[0] // 2 if setting.bias == BUCKETS else 0,
            *(scale, softcap, dropout),
        )
        constants = Constants(
            *(setting.rows, setting.cols, self.heads, self.heads // self.kv_heads, d, e, padded(d), padded(e)),
            *(precision(), softcap > 0, dropout > 0, setting.bias, setting.boxes),
            *(bool(setting.segments), bool(setting.per_head), per_row),
        )
        self.options = {"size": padded(max(t, s)), "C": constants.for_kernels()}

    def forward(self, out: Tensor, lse: Tensor) -> None:
        with on(out):
            forward.forward[self._grid(self.problem.n_q, self.heads)](self.problem, out, lse, **self.options)

    def backward(self, out: Tensor, lse: Tensor, grad: Tensor, grad_lse: Tensor) -> list[Tensor]:
        """Gradients of q, k, v, and of the bias if it is trained."""
        p, grad, delta = self.problem, grad.contiguous(), torch.empty_like(lse)
        d_q, d_k, d_v = (x.new_empty(x.shape) for x in (p.q, p.k, p.v))
        buckets = p.bias.numbers.shape[0] if self.setting.bias == BUCKETS and self.setting.trained else 0
        width = padded(buckets) if buckets else 0
        d_buckets = lse.new_zeros(self.batch, self.heads, p.n_q, max(width, 1))
        with on(out):
            backward.backward_queries[self._grid(p.n_q, self.heads)](
                *(p, out, grad, lse, grad_lse.contiguous(), delta, d_q, d_buckets, buckets), NB=width, **self.options
            )
            backward.backward_keys[self._grid(p.n_k, self.kv_heads)](p, grad, lse, delta, d_k, d_v, **self.options)
        if buckets:
            d_bias = d_buckets.sum((0, 2))[:, :buckets].mT
        elif self.setting.bias == DENSE and self.setting.trained:
            d_bias = self._bias_gradient(grad, lse, delta)
        else:
            return [d_q, d_k, d_v]
        return [d_q, d_k, d_v, d_bias.to(p.bias.numbers.dtype).contiguous()]

    def _bias_gradient(self, grad: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
        p = self.problem
        shape = p.bias.numbers.shape
        over = [of_bias != n for of_bias, n in zip(shape, self.scores, strict=True)]
        counts = [1 if o else n for o, n in zip(over, (self.batch, self.heads, p.n_q, p.n_k), strict=True)]
        d_bias = torch.empty(shape, dtype=torch.float32, device=grad.device)
        sums = dict(zip(("OVER_B", "OVER_H", "OVER_T", "OVER_S"), over, strict=True))
        with on(grad):
            backward.backward_bias[(math.prod(counts),)](
                *(p, grad, lse, delta, d_bias, self.batch), **sums, **self.options
            )
        return d_bias

    def _grid(self, tiles: int, heads: int) -> tuple[int]:
        return (self.batch * heads * tiles,)


def rows(x: Tensor) -> Tensor:
    """x with contiguous rows, as the kernels read them; copied if it has others."""
    return x if x.stride(-1) == 1 else x.contiguous()


def padded(width: int) -> int:
    """The width rounded up to a power of two, at least 16, as matrix units take it."""
    return max(16, 1 << (width - 1).bit_length())


def precision() -> str:
    """The precision of fp32 products: TF32 if PyTorch's own matrix products have it."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def on(x: Tensor) -> AbstractContextManager[Any]:
    """Make x's device the current one, on which Triton launches."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
