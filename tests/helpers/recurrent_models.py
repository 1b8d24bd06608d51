"""Small recurrent translators whose every parameter shows, and the cells' equations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import qkv
from qkv.nn.models.recurrent.model import Recurrent

SIZES = {"vocab_size": 13, "d_e": 5, "d_h": 4, "d_s": 6}


def built(**changes: Any) -> Any:
    """A model whose every parameter shows."""
    model = qkv.build(Recurrent.from_dict({**SIZES, **changes}), dtype=torch.float64).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return model


def ids(n: int, seed: int = 0) -> Tensor:
    return torch.randint(13, (1, n), generator=torch.Generator().manual_seed(seed))


def gru(x: Tensor, h: Tensor, w: dict[str, Tensor]) -> Tensor:
    i = (w["weight_ih_l0"] @ x + w["bias_ih_l0"]).chunk(3)
    g = (w["weight_hh_l0"] @ h + w["bias_hh_l0"]).chunk(3)
    r, z = torch.sigmoid(i[0] + g[0]), torch.sigmoid(i[1] + g[1])
    return (1 - z) * torch.tanh(i[2] + r * g[2]) + z * h


def lstm(x: Tensor, h: Tensor, c: Tensor, w: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    i, f, g, o = (w["weight_ih_l0"] @ x + w["bias_ih_l0"] + w["weight_hh_l0"] @ h + w["bias_hh_l0"]).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def maxout(linear: Any, x: Tensor) -> Tensor:
    return linear(x).view(-1, 2).max(1).values
