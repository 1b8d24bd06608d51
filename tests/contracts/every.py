"""What the tests of shipped bugs share: every backend and family as a parameter, and one call for any family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from axes import DECODERS, FAMILIES, backends
from small import ids, randn
from torch import Tensor

from qkv.core.layout import Layout

ALL = [example.value for example in backends()]
every_backend = pytest.mark.parametrize("backend", ALL)
every_family = pytest.mark.parametrize("family", FAMILIES)
every_decoder = pytest.mark.parametrize("family", DECODERS)


def leaves(rows: int = 2, t: int = 5, s: int = 5, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """q, k, v with 4 query heads of 8, 2 key-value heads."""
    shapes = [(rows, t, 4, 8), (rows, s, 2, 8), (rows, s, 2, 8)]
    return [randn(*shape, seed=i, dtype=dtype).requires_grad_() for i, shape in enumerate(shapes)]


def call(built: Any, tokens: Tensor, layout: Layout | None = None, **kwargs: Any) -> Any:
    """One forward pass of any family; an encoder–decoder reads the same short source in every row."""
    if not built.is_encoder_decoder:
        return built(tokens, layout=layout, **kwargs)
    return built(ids(1, 4, seed=9).expand(len(tokens), -1), tokens, target_layout=layout, **kwargs)
