"""Base classes of positional encodings: `Position`, the spec, and `PositionModule`, the module that belongs to a stack.

A scheme defines any of `embed` (added to the input), `rotate` (applied to queries and keys) and `bias` (added to scores).
Tables are computed from positions in fp32 in each pass, so nothing has to be stored, and positions have no upper limit.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...core.layout import Grid, Layout, View
from ...core.spec import Spec


class Widths(NamedTuple):
    """Sizes of a stack that its position module depends on."""

    d_model: int
    n_heads: int
    d_head: int
    max_positions: int | None
    bidirectional: bool = True
    grid: Grid | None = None  # of the image that the stack reads


Tables = tuple[Tensor, ...]  # of rotary positions, cos and sin: (B or 1, T, 1, R/2)


class Position(Spec, role="position"):
    """Base class of positional encodings: `module(widths)` makes the module, `n_parameters` counts its parameters."""

    text: ClassVar[str]  # canonical JSON, computed once, an argument of custom operators

    def model_post_init(self, context: object) -> None:
        # Straight into the instance's dictionary, where a graph compiler finds it without pydantic's attribute hooks.
        self.__dict__["text"] = json.dumps(self.to_dict(), sort_keys=True)

    @property
    def unbounded(self) -> bool:
        """Whether positions rescale themselves for texts of any length."""
        return False

    def module(self, widths: Widths) -> PositionModule:
        return PositionModule()

    def n_parameters(self, widths: Widths) -> int:
        return 0

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        """Return the bias (B or 1, H, T, S) of queries and keys, which tiled kernels call on tiles; optional."""
        raise NotImplementedError(f"{type(self).__name__} has no bias")

    def bias_grad(self, tensors: tuple[Tensor, ...], q: View, k: View, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `tensors` from the gradients of a tile's scores; without it the whole bias is
        computed."""
        raise NotImplementedError(f"{type(self).__name__} has no bias_grad")

    def tensors_of_heads(self, tensors: tuple[Tensor, ...], heads: Sequence[int]) -> tuple[Tensor, ...]:
        """Return `tensors` for some of the heads. Raises ValueError by default: heads can't be removed then."""
        raise ValueError(f"the position bias of {self.kind} has no part for each head, so none can be removed")

    @property
    def has_bias_grad(self) -> bool:
        return type(self).bias_grad is not Position.bias_grad


@dataclass(frozen=True, eq=False)
class Bias:
    """A bias on the scores, computed where a kernel needs it: `scheme.bias(tensors, q, k)` of shape (B or 1, H, T, S).

    Custom operators receive the scheme as JSON.
    """

    scheme: Position
    tensors: tuple[Tensor, ...]

    def __call__(self, q: View, k: View) -> Tensor:
        return self.scheme.bias(self.tensors, q, k)

    def of_heads(self, heads: Sequence[int]) -> Bias:
        """The bias of some of the heads."""
        return Bias(self.scheme, self.scheme.tensors_of_heads(self.tensors, heads))

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)


class PositionModule(nn.Module):
    """Base class of position modules: no encoding at all. A scheme overrides `embed`, `tables` and `rotate`, or `bias`."""

    max_positions: int | None = None  # number of positions it is defined for; None means all
    reads_axes: ClassVar[bool] = False  # whether it reads time, row and column of tokens (`positions.axes`)

    def embed(self, layout: Layout) -> Float[Tensor, "B T M"] | None:
        """Return what is added to the embeddings."""
        return None

    def tables(self, layout: Layout) -> Tables | None:
        """Return the tables of `rotate`, computed once per pass."""
        return None

    def rotate(self, x: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        """Rotate queries or keys by position; to treat them differently, override `rotate_queries` and `rotate_keys`."""
        return x

    def rotate_queries(self, q: Float[Tensor, "B T H D"], tables: Tables) -> Float[Tensor, "B T H D"]:
        return self.rotate(q, tables)

    def rotate_keys(self, k: Float[Tensor, "B T K D"], tables: Tables) -> Float[Tensor, "B T K D"]:
        return self.rotate(k, tables)

    def bias(self, device: torch.device | None = None) -> Bias | None:
        """Return the bias on the scores of every layer, with its constants on `device`."""
        return None
