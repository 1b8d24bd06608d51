"""AWQ: inputs that are large get finer steps."""

from __future__ import annotations

import torch

from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.methods import awq
from qkv.nn.quantization.methods.rtn import rtn


def layer(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix, and correlated inputs of unequal size, a few of them large."""
    generator = torch.Generator().manual_seed(seed)
    w = 0.05 * torch.randn(24, 64, generator=generator)
    mixing = torch.linalg.qr(torch.randn(64, 64, generator=generator))[0]
    x = torch.randn(600, 64, generator=generator) * torch.logspace(-1, 1, 64) @ mixing
    x[:, ::16] *= 8
    return w, x


def test_awq_scales_up_what_is_large() -> None:
    w, x = layer()
    x = torch.randn(600, 64, generator=torch.Generator().manual_seed(3))
    x[:, 7] *= 60
    second, mean = x.T @ x / len(x), x.abs().mean(0)
    format = format_of("int4")
    s = awq.factors([w], format, [32], second=second, mean=mean)
    assert int(s.argmax()) == 7
    scaled = rtn(w * s, format, 32).dense() / s
    plain = rtn(w, format, 32).dense()
    assert (x @ (scaled - w).T).norm() < 0.7 * (x @ (plain - w).T).norm()
