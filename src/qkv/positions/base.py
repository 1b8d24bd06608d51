"""The role of position schemes, `Position`: what a scheme adds to the input, to queries and keys, or to the scores.

Each scheme offers any of `embed` (added to the input), `rotate` (applied to queries and keys) and `bias` (added to the
scores). A scheme is a spec; the module that it makes belongs to a stack. Tables are computed from positions in fp32 at
each pass, so nothing has to be stored, and any position is as good as any other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..core.layout import Grid, Layout, View
from ..core.spec import Spec


class Widths(NamedTuple):
    """What a position module needs to know of its stack."""

    d_model: int
    n_heads: int
    d_head: int
    max_positions: int | None
    bidirectional: bool = True
    grid: Grid | None = None  # of the image that the stack reads


Tables = tuple[Tensor, ...]  # of rotary positions, cos and sin: (B or 1, T, 1, R/2)


class Position(Spec, role="position"):
    """A position scheme. `module(widths)` gives what computes it; `n_parameters` what it adds to a model."""

    text: ClassVar[str]  # the canonical JSON, computed once, which a custom operator is given

    def model_post_init(self, context: Any) -> None:
        # Straight into the instance's dictionary, where a graph compiler finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)

    def module(self, widths: Widths) -> PositionModule:
        return PositionModule()

    def n_parameters(self, widths: Widths) -> int:
        return 0

    # A scheme with a bias defines `bias`, which tiled kernels call on tiles. One that is trained may define `bias_grad`
    # too, the gradients of its tensors from those of a tile's scores; without it the whole bias is computed.
    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no bias")

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        raise NotImplementedError(f"{type(self).__name__} has no bias_grad")

    @property
    def has_bias_grad(self) -> bool:
        return type(self).bias_grad is not Position.bias_grad


@dataclass(frozen=True, eq=False)
class Bias:
    """A bias on the scores, computed where a kernel needs it: `scheme.bias(tensors, q, k)` of shape (B or 1, H, T, S).

    The scheme travels as JSON, which is what a custom operator can receive.
    """

    scheme: Position
    tensors: tuple[Tensor, ...]

    def __call__(self, q: View, k: View) -> Tensor:
        return self.scheme.bias(self.tensors, q, k)

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


class PositionModule(nn.Module):
    """Adds, turns and biases nothing; a scheme overrides what it does."""

    max_positions: int | None = None  # the positions it is defined for; None is all

    def embed(self, layout: Layout) -> Float[Tensor, "B T M"] | None:
        """What to add to the embeddings."""
        return None

    def tables(self, layout: Layout) -> Tables | None:
        """What `rotate` needs, computed once per pass."""
        return None

    def rotate(self, x: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        """Queries or keys, turned by where they are; a scheme that treats the two differently overrides the next two."""
        return x

    def rotate_queries(self, q: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        return self.rotate(q, tables)

    def rotate_keys(self, k: Float[Tensor, "B T K D"], tables: Tables) -> Float[Tensor, "B T K D"]:
        return self.rotate(k, tables)

    def bias(self, device: torch.device | None = None) -> Bias | None:
        """What to add to the scores of every layer, with its constants on `device`."""
        return None
