"""The interface of a group of training processes (ranks), and `ALONE`, the group of one."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """A group of processes that train one model, however they are connected."""

    rank: int
    size: int

    def sum(self, value: Tensor) -> Tensor: ...
    def barrier(self) -> None: ...


class Alone:
    """The group of one."""

    rank = 0
    size = 1

    def sum(self, value: Tensor) -> Tensor:
        return value

    def barrier(self) -> None:
        return None


ALONE: Ranks = Alone()
