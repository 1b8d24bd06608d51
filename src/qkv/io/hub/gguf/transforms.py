"""How tensors of a GGUF file differ from a model's: rotated pairs beside each other, norms that hold 1 + g.

llama.cpp rotates neighboring coordinates (2i, 2i + 1) in the families of Llama's kind, where the Hub and qkv rotate i and
i + R/2, so the rows of queries and keys stand in another order. Gemma's norms are computed as (1 + g), and llama.cpp
multiplies by what is in the file. The latter is arithmetic, in fp32; everything else moves numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..transforms import Shape, Tensors, TensorTransform


@dataclass(frozen=True)
class RotatedNeighbors(TensorTransform):
    """Rows of queries or keys, head by head: ours are r₀ r₁ … | s₀ s₁ …, theirs r₀ s₀ r₁ s₁ …, for rotated pairs (r, s)."""

    n_heads: int

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.unflatten(0, (self.n_heads, -1, 2)).transpose(1, 2).flatten(0, 2) for t in theirs]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.unflatten(0, (self.n_heads, 2, -1)).transpose(1, 2).flatten(0, 2) for t in ours]

    @property
    def keeps_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Shifted(TensorTransform):
    """Theirs are ours plus a number, in fp32."""

    by: float

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.float() - self.by for t in theirs]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.float() + self.by for t in ours]


@dataclass(frozen=True)
class Times(TensorTransform):
    """Theirs are ours times a number, in fp32: a scale of the output that llama.cpp has no key for."""

    by: float

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.float() / self.by for t in theirs]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.float() * self.by for t in ours]
