"""Changes of an activation: set to zero or to its mean, scaled, patched, or with a direction added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

Index = int | Sequence[int] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Change:
    """Base class of changes. The fields select what changes, by index from 0 or from −1 backward; None selects all.

    rows:      texts of the batch. positions: tokens; of scores and weights the queries.
    heads:     of q, k, v, scores, weights and `heads`. keys: of scores and weights.
    features:  coordinates of the last axis, such as the neurons of a feed-forward layer.
    """

    rows: Index = None
    positions: Index = None
    heads: Index = None
    keys: Index = None
    features: Index = None

    SELECTORS: ClassVar[tuple[str, ...]] = ("rows", "positions", "heads", "keys", "features")

    def changed(self, x: Tensor) -> Tensor:
        """Return the new values of the whole activation, of which the selected ones are used."""
        raise NotImplementedError

    def apply(self, x: Tensor, axes: Mapping[str, int], name: str) -> Tensor:
        """Return the activation with the selected values changed. Raises ValueError for an axis that it has not, or an
        index outside it."""
        chosen = self._selected(x, axes, name)
        new = self.changed(x).to(x.dtype)
        return new.expand_as(x) if chosen is None else torch.where(chosen, new, x)

    def _selected(self, x: Tensor, axes: Mapping[str, int], name: str) -> Tensor | None:
        """A mask that broadcasts to x; None selects everything."""
        mask: Tensor | None = None
        for selector in self.SELECTORS:
            index = getattr(self, selector)
            if index is None:
                continue
            if selector not in axes:
                raise ValueError(f"{name} has no {selector}; select from {', '.join(axes)}")
            axis = axes[selector] % x.ndim
            size = x.shape[axis]
            at = [index] if isinstance(index, int) else list(index)
            outside = next((i for i in at if not -size <= i < size), None)
            if outside is not None:
                raise ValueError(f"{name} has {size} {selector}, from 0 to {size - 1}; there is no {outside}")
            one = torch.zeros(size, dtype=torch.bool, device=x.device)
            one[at] = True
            one = one.view(-1, *(1,) * (x.ndim - 1 - axis))
            mask = one if mask is None else mask & one
        return mask

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name)) for f in fields(self)]
        shown = (f"{name}={_short(value)}" for name, value in given if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Zero(Change):
    """x ← 0 (zero ablation)."""

    def changed(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True, eq=False, repr=False)
class ScaleActivation(Change):
    """x ← factor · x."""

    factor: float

    def changed(self, x: Tensor) -> Tensor:
        return x * self.factor


@dataclass(frozen=True, eq=False, repr=False)
class Mean(Change):
    """x ← its mean over rows and positions (mean ablation), or `value`, a mean taken over other data."""

    value: Tensor | None = None

    def changed(self, x: Tensor) -> Tensor:
        mean = x.mean((0, 1), keepdim=True) if self.value is None else self.value.to(x.device)
        return mean.expand_as(x)


@dataclass(frozen=True, eq=False, repr=False)
class Patch(Change):
    """x ← value, an activation of another pass (activation patching); it broadcasts to x."""

    value: Tensor

    def changed(self, x: Tensor) -> Tensor:
        try:
            return self.value.to(x.device).expand_as(x)
        except RuntimeError:
            raise ValueError(
                f"a patch of shape {tuple(self.value.shape)} does not broadcast to an activation of shape {tuple(x.shape)}; "
                "patch between texts of equally many tokens"
            ) from None


@dataclass(frozen=True, eq=False, repr=False)
class Add(Change):
    """x ← x + scale · direction (activation steering); the direction broadcasts to x."""

    direction: Tensor
    scale: float = 1.0

    def changed(self, x: Tensor) -> Tensor:
        try:
            return x + self.scale * self.direction.to(x.device).expand_as(x)
        except RuntimeError:
            raise ValueError(
                f"a direction of shape {tuple(self.direction.shape)} does not broadcast to an activation of shape "
                f"{tuple(x.shape)}"
            ) from None


def _short(value: object) -> str:
    return f"tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else str(value)
