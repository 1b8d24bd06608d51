"""What a group of cooperating processes is, to code that must not know how they are connected.

qkv itself trains in one process, which is the group `ALONE`.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Ranks(Protocol):
    """A group of processes that train one model: any object with these members."""

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
