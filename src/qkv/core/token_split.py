"""The interface of a stack whose tokens are divided over ranks (sequence and context parallelism)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor, nn

from .layout import Layout


class TokenSplit(Protocol):
    """How the tokens of a stack are divided over ranks during one forward pass.

    Between `enter` and `leave` each rank has its own part of the tokens. Every method is differentiable, and all ranks of
    the split call the same ones in the same order.
    """

    def enter(self, x: Tensor) -> Tensor:
        """This rank's part of the stack's input (…, B, T, M), which every rank has."""
        ...

    def own(self, x: Tensor) -> Tensor:
        """This rank's part of something else that every rank has for all tokens."""
        ...

    def share(self, run: Any) -> None:
        """Set the layout of a `Pass`, and what its layers need to reach the tokens of other ranks."""
        ...

    def apply(self, module: nn.Module, x: Tensor, run: Any, mixes: bool) -> Tensor:
        """Apply a sublayer of a block to this rank's tokens. `mixes`: it is one in which tokens see one another."""
        ...

    def leave(self, x: Tensor) -> Tensor:
        """The tokens of all ranks, on every rank."""
        ...


BeginSplit = Callable[[Layout], TokenSplit]
"""Makes the split of one forward pass over tokens of a layout."""
