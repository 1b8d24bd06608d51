"""A score bias as a function of where tokens are, so that a tiled kernel can make the part that it needs.

`attend` takes a plain tensor, broadcastable to (B, H, T, S), or a `Bias`: the position scheme that defines it and the
tensors that it is made of. What names a scheme travels as JSON, which is what a custom operator can receive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ..core.layout import View


class BiasScheme(Protocol):
    """What a position scheme with a bias offers (`positions.schemes`)."""

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor: ...
    @property
    def has_bias_grad(self) -> bool: ...
    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Bias:
    """A bias that is computed where it is needed: `scheme.bias(tensors, q, k)` of shape (B or 1, H, T, S)."""

    scheme: BiasScheme
    tensors: tuple[Tensor, ...]

    def __call__(self, q: View, k: View) -> Tensor:
        return self.scheme.bias(self.tensors, q, k)

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)
