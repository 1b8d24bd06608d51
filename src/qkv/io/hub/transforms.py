"""How tensors of another library become ours, and back: moves of numbers, never arithmetic, so both ways are bitwise.

A transform takes a list of tensors and gives a list. `to_theirs` undoes `to_ours`. `shapes` returns the shapes that it
gives: what a file must hold is known before anything is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Shape = tuple[int, ...]
Tensors = list[Tensor]


class TensorTransform:
    """The identity, name for name. Subclasses move numbers."""

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        """Our tensors, of the given shapes. They may be views of theirs."""
        return theirs

    def to_theirs(self, ours: Tensors) -> Tensors:
        return ours

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        """The shapes of their tensors, from ours."""
        return list(ours)

    @property
    def keeps_rows(self) -> bool:
        """Whether only whole rows move, so rows of codes and scales can move so too."""
        return type(self) is TensorTransform


SAME = TensorTransform()


@dataclass(frozen=True)
class Transposed(TensorTransform):
    """Matrices stand on their side (GPT-2's Conv1D keeps (d_in, d_out)); vectors are as they are."""

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.mT if t.ndim > 1 else t for t in theirs]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.mT if t.ndim > 1 else t for t in ours]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        return [(*shape[:-2], *reversed(shape[-2:])) for shape in ours]


@dataclass(frozen=True)
class Joined(TensorTransform):
    """Their one tensor holds ours behind one another along an axis: fused queries, keys and values; fused gate and up."""

    axis: int = 0

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return list(theirs[0].split([shape[self.axis] for shape in shapes], self.axis))

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [torch.cat(ours, self.axis)]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        joined = list(ours[0])
        joined[self.axis] = sum(shape[self.axis] for shape in ours)
        return [tuple(joined)]

    @property
    def keeps_rows(self) -> bool:
        return self.axis == 0


@dataclass(frozen=True)
class Grouped(TensorTransform):
    """Their one tensor holds, for each of `groups` in turn, that group's rows of each of ours.

    With one group per key-value head: q₀ k₀ v₀ q₁ k₁ v₁ … (NeoX, BLOOM), or q₀ q₁ k₀ v₀ q₂ q₃ k₁ v₁ … if two query
    heads share one (Falcon).
    """

    groups: int

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        rows = theirs[0].unflatten(0, (self.groups, -1))
        return [part.flatten(0, 1) for part in rows.split([shape[0] // self.groups for shape in shapes], 1)]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [torch.cat([t.unflatten(0, (self.groups, -1)) for t in ours], 1).flatten(0, 1)]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        return [(sum(shape[0] for shape in ours), *ours[0][1:])]

    @property
    def keeps_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Stacked(TensorTransform):
    """Each of their tensors is one slice of our single one: experts that they keep apart. `{e}` numbers them."""

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [torch.stack(theirs)]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return list(ours[0].unbind())

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        return [ours[0][1:]] * ours[0][0]


@dataclass(frozen=True)
class Shaped(TensorTransform):
    """The same numbers in the same order under another shape, theirs: a vector kept as (1, V) is `Shaped((1, -1))`."""

    theirs: Shape

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.reshape(shape) for t, shape in zip(theirs, shapes, strict=True)]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.reshape(self.theirs) for t in ours]

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        known = math.prod(n for n in self.theirs if n >= 0)
        return [tuple(math.prod(shape) // known if n < 0 else n for n in self.theirs) for shape in ours]


@dataclass(frozen=True)
class PixelsLast(TensorTransform):
    """Flattened patches. Other libraries store the channels last (pixel by pixel), and qkv stores them first."""

    channels: int

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        return [t.unflatten(1, (-1, self.channels)).mT.flatten(1) for t in theirs]

    def to_theirs(self, ours: Tensors) -> Tensors:
        return [t.unflatten(1, (self.channels, -1)).mT.flatten(1) for t in ours]


@dataclass(frozen=True, init=False)
class TransformChain(TensorTransform):
    """Several transforms, in the order in which theirs become ours."""

    steps: tuple[TensorTransform, ...]

    def __init__(self, *steps: TensorTransform) -> None:
        object.__setattr__(self, "steps", steps)

    def to_ours(self, theirs: Tensors, shapes: Sequence[Shape]) -> Tensors:
        for step, wanted in zip(self.steps, self._between(shapes), strict=True):
            theirs = step.to_ours(theirs, wanted)
        return theirs

    def to_theirs(self, ours: Tensors) -> Tensors:
        for step in reversed(self.steps):
            ours = step.to_theirs(ours)
        return ours

    def shapes(self, ours: Sequence[Shape]) -> list[Shape]:
        return self.steps[0].shapes(self._between(ours)[0])

    @property
    def keeps_rows(self) -> bool:
        return all(step.keeps_rows for step in self.steps)

    def _between(self, shapes: Sequence[Shape]) -> list[list[Shape]]:
        """What each step gives on the way to ours."""
        wanted = [list(shapes)]
        for step in reversed(self.steps[1:]):
            wanted.insert(0, step.shapes(wanted[0]))
        return wanted
