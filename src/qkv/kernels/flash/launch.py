"""Launches the Triton kernels: pointers, strides and compile-time constants."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .block_map import Tiles
from .kernels import backward, forward
from .setting import BUCKETS, DENSE, Setting


class BiasTensors(NamedTuple):
    """Slopes (H,); or buckets' numbers (buckets, H) and the bucket of each distance −reach … reach; or the bias itself."""

    numbers: Tensor
    buckets: Tensor


class Launch:
    """One call's kernels, forward or backward."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: list[Tensor],
        tiles: list[Tensor],
        setting: Setting,
        scale: float,
        softcap: float,
        dropout: float,
        seed: Tensor,
    ) -> None:
        self.q, self.k, self.v = (rows(x) for x in (q, k, v))
        self.batch, self.t, self.heads, self.d = q.shape
        self.s, self.kv_heads, self.e = k.shape[1], k.shape[2], v.shape[3]
        self.setting, self.tiles, self.scale, self.seed = setting, Tiles(*tiles), scale, seed
        given = bias[0] if bias else q
        self.bias = BiasTensors(given, bias[1] if setting.bias == BUCKETS else given)
        self.n_q, self.n_k = self.tiles.columns.shape[1:]
        self.numbers = {"scale": scale, "softcap": softcap, "dropout": dropout}
        self.constants = {
            "M": setting.rows,
            "N": setting.cols,
            "H": self.heads,
            "G": self.heads // self.kv_heads,
            "D": self.d,
            "E": self.e,
            "DP": padded(self.d),
            "EP": padded(self.e),
            "BIAS": setting.bias,
            "CAP": softcap > 0,
            "DROPOUT": dropout > 0,
            "BOXES": setting.boxes,
            "SEGMENTS": bool(setting.segments),
            "PER_HEAD": bool(setting.per_head),
            "MAPS": int(self.tiles.columns.shape[0] > 1),
            "PRECISION": precision(),
        }

    def forward(self, out: Tensor, lse: Tensor) -> None:
        with on(self.q):
            forward.forward[self._grid(self.n_q, self.heads)](
                *(self.q, self.k, self.v, out, lse), *self._common(), **self.numbers, **self.constants
            )

    def backward(self, out: Tensor, lse: Tensor, grad: Tensor, grad_lse: Tensor) -> list[Tensor]:
        """Gradients of q, k, v, and of the bias where it is trained."""
        grad, delta = grad.contiguous(), torch.empty_like(lse)
        d_q, d_k, d_v = (x.new_empty(x.shape) for x in (self.q, self.k, self.v))
        buckets = self.bias.numbers.shape[0] if self.setting.bias == BUCKETS and self.setting.trained else 0
        d_buckets = lse.new_zeros(self.batch, self.heads, self.n_q, padded(buckets) if buckets else 1)
        options = {**self.numbers, **self.constants}
        with on(self.q):
            backward.backward_queries[self._grid(self.n_q, self.heads)](
                *(self.q, self.k, self.v, out, grad, lse, grad_lse.contiguous(), delta, d_q, d_buckets),
                *self._common(),
                n_buckets=buckets,
                NB=padded(buckets) if buckets else 0,
                **options,
            )
            backward.backward_keys[self._grid(self.n_k, self.kv_heads)](
                *(self.q, self.k, self.v, grad, lse, delta, d_k, d_v), *self._common(), **options
            )
        if buckets:
            d_bias = d_buckets.sum((0, 2))[:, :buckets].mT
        elif self.setting.bias == DENSE and self.setting.trained:
            d_bias = self._bias_gradient(grad, lse, delta)
        else:
            return [d_q, d_k, d_v]
        return [d_q, d_k, d_v, d_bias.to(self.bias.numbers.dtype).contiguous()]

    def _bias_gradient(self, grad: Tensor, lse: Tensor, delta: Tensor) -> Tensor:
        given = self.bias.numbers
        wide = (self.batch, self.heads, self.t, self.s)
        over = [of_bias != n for of_bias, n in zip(given.shape, wide, strict=True)]
        counts = [1 if o else n for o, n in zip(over, (self.batch, self.heads, self.n_q, self.n_k), strict=True)]
        d_bias = torch.empty(given.shape, dtype=torch.float32, device=given.device)
        with on(self.q):
            backward.backward_bias[(math.prod(counts),)](
                *(self.q, self.k, self.v, grad, lse, delta, d_bias),
                *self._common(),
                batch=self.batch,
                **dict(zip(("OVER_B", "OVER_H", "OVER_T", "OVER_S"), over, strict=True)),
                **self.numbers,
                **self.constants,
            )
        return d_bias

    def _grid(self, tiles: int, heads: int) -> tuple[int]:
        return (self.batch * heads * tiles,)

    def _common(self) -> tuple[Any, ...]:
        """What all kernels take after the tensors of their own."""
        strides = [x.stride()[:3] for x in (self.q, self.k, self.v)]
        of_bias = (0, 0, 0, 0)
        if self.setting.bias == DENSE:
            wide = (self.batch, self.heads, self.t, self.s)
            of_bias = tuple(self.bias.numbers.expand(wide).stride())  # type: ignore[assignment]
        reach = self.bias.buckets.shape[0] // 2 if self.setting.bias == BUCKETS else 0
        size = padded(max(self.t, self.s))
        return (self.tiles, self.bias, self.seed, *strides, of_bias, self.t, self.s, self.n_q, self.n_k, reach, size)


def rows(x: Tensor) -> Tensor:
    """With consecutive numbers in each row, which the kernels read as such; copied where they are not."""
    return x if x.stride(-1) == 1 else x.contiguous()


def padded(width: int) -> int:
    """The power of two, at least 16, that the matrix units take a width as."""
    return max(16, 1 << (width - 1).bit_length())


def precision() -> str:
    """Products of fp32 are rounded to TF32 where PyTorch's own matrix products are."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def on(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
