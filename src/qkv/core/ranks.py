"""What the rest of the library knows of training on many ranks: their groups, and how a batch and its tokens are split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

import torch
from torch import Tensor, nn

from .extras import Extras
from .layout import Layout

Value = TypeVar("Value")


class Ranks(Protocol):
    """A group of processes that train one model, however they are connected.

    All ranks call the same methods in the same order. Values of `sum` have the same shape on every rank.
    """

    rank: int
    size: int

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, without a gradient."""
        ...

    def sum_with_gradient(self, value: Tensor) -> Tensor:
        """The sum over all ranks. Its backward pass sums the gradients of all ranks."""
        ...

    def max(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over all ranks."""
        ...

    def gather(self, value: Value) -> list[Value]:
        """The picklable values of all ranks, in the order of the ranks."""
        ...

    def broadcast(self, value: Value) -> Value:
        """Rank 0's picklable value."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...


class Alone:
    """The group of one."""

    rank = 0
    size = 1

    def sum(self, value: Tensor) -> Tensor:
        return value

    def sum_with_gradient(self, value: Tensor) -> Tensor:
        return value

    def max(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def gather(self, value: Value) -> list[Value]:
        return [value]

    def broadcast(self, value: Value) -> Value:
        return value

    def barrier(self) -> None:
        return None


ALONE: Ranks = Alone()


T = TypeVar("T")
Item = TypeVar("Item")


def in_turns(
    ranks: Ranks, items: Iterable[Item], compute: Callable[[Item], T], together: bool = False
) -> Iterator[tuple[Item, T]]:
    """Each item with what is computed from it, by one rank for all: rank 0 takes the first, rank 1 the second and so on.

    All ranks give the same items, and get the same results, which are picklable, in order. With `together` all compute
    equally often, since they need one another: in the last round, ranks without an item compute the first one's for nothing.
    """
    remaining = iter(items)
    while some := list(itertools.islice(remaining, ranks.size)):
        at = ranks.rank if ranks.rank < len(some) else 0
        own = compute(some[at]) if together or at == ranks.rank else None
        yield from zip(some, ranks.gather(own))  # noqa: B905  the last results may be of no item


@dataclass(frozen=True)
class BatchSplit:
    """Among which ranks the current batch is split.

    peers: ranks that compute the same layers. rows: peers that have different rows of the batch.
    idle:  this rank has no rows, and computes another rank's for nothing.
    first_row: the number of this rank's first row in the batch, or of its first document if rows are packed.
    seed: of what the layers draw for the batch, the same on all ranks; None if they draw from the default generator.
    """

    peers: Ranks = ALONE
    rows: Ranks = ALONE
    idle: bool = False
    first_row: int = 0
    seed: int | None = None


_current = BatchSplit()


def current() -> Ranks:
    """The ranks over which statistics of the current batch are summed. A loss over a whole batch, such as the balance
    of experts, uses them. If ranks have the same rows or tokens, sums count these several times, and ratios are
    right."""
    return _current.peers


def current_rows() -> Ranks:
    """The ranks that have different rows of the current batch."""
    return _current.rows


def idle() -> bool:
    """Whether this rank has no rows of the current batch, and computes another rank's for nothing."""
    return _current.idle


def first_row() -> int:
    """The number of this rank's first row in the current batch."""
    return _current.first_row


def draws_alike() -> bool:
    """Whether all ranks draw the same numbers for the current batch, by the places of what they compute."""
    return not torch.compiler.is_compiling() and _current.seed is not None


class LayerDraws:
    """Seeds the default generator before each of the layers of a stack, and after them. So it doesn't matter which of the
    layers this rank of a pipeline has. Does nothing outside of training steps.
    """

    def __init__(self) -> None:
        self.seed = int(torch.randint(1 << 62, (), device="cpu")) if draws_alike() else None

    def begin(self, layer: int) -> None:
        if self.seed is not None:
            torch.default_generator.manual_seed(self.seed + layer)


@contextmanager
def splitting(split: BatchSplit) -> Iterator[None]:
    """Inside the block, a batch is split among ranks, and the default generator begins with its seed. This holds for the
    whole process, since a backward pass may run in other threads; so two threads must not be in such a block at once."""
    global _current
    before, _current = _current, split
    if split.seed is not None:
        torch.default_generator.manual_seed(split.seed)
    try:
        yield
    finally:
        _current = before


def concatenate(rows: Tensor) -> tuple[Tensor, int]:
    """The rows of all ranks for the current batch, in the order of the ranks, and the index of this rank's first row. An
    idle rank adds none.

    The backward pass sums the gradients that all ranks have for a row.
    """
    ranks = _current.rows
    if ranks.size == 1:
        return rows, 0
    rows = rows[:0] if idle() else rows
    counts_on_device = torch.zeros(ranks.size, dtype=torch.int64, device=rows.device)
    counts_on_device[ranks.rank] = len(rows)
    counts = ranks.sum(counts_on_device).tolist()
    start = sum(counts[: ranks.rank])
    parts = [
        rows.new_zeros(start, *rows.shape[1:]),
        rows,
        rows.new_zeros(sum(counts) - start - len(rows), *rows.shape[1:]),
    ]
    return ranks.sum_with_gradient(torch.cat(parts)), start


class TokenSplit(Protocol):
    """How the tokens of a stack are divided over ranks during one forward pass.

    Between `own` and `whole` each rank has its own part of the tokens. Both are differentiable, and all ranks of the split
    call the same methods in the same order.
    """

    def own(self, x: Tensor) -> Tensor:
        """This rank's part of tokens (…, B, T, M) that every rank has."""
        ...

    def whole(self, x: Tensor) -> Tensor:
        """The tokens of all ranks, on every rank."""
        ...

    def own_randomness(self) -> AbstractContextManager[None]:
        """Inside the block, dropout of different tokens is independent, though ranks draw alike outside of it."""
        ...

    def share(self, run: Any) -> None:
        """Set the layout of a `Pass`, and what its layers need to reach the tokens of other ranks."""
        ...

    def apply(self, module: nn.Module, x: Tensor, run: Any, mixes: bool) -> Tensor:
        """Apply a sublayer of a block to this rank's tokens. `mixes`: it is one in which tokens see one another."""
        ...


BeginSplit = Callable[[Layout], TokenSplit]
"""Makes the split of one forward pass over tokens of a layout."""


class StackPart(Protocol):
    """The layers of a stack that this rank of a pipeline has.

    begins, ends: whether the first and the last layer are among them. is_earlier, is_later: all layers are on earlier ranks,
    or on later ones.
    """

    @property
    def layers(self) -> range: ...
    @property
    def begins(self) -> bool: ...
    @property
    def ends(self) -> bool: ...
    @property
    def is_earlier(self) -> bool: ...
    @property
    def is_later(self) -> bool: ...

    def output(self, extras: Extras | None) -> Tensor:
        """The output of a stack that an earlier rank has finished."""
        ...

    def take_up(self, extras: Extras | None) -> Tensor:
        """The hidden states after the layers of the rank before."""
        ...

    def hand_over(self, states: list[Tensor | None], extras: Extras | None) -> NoReturn:
        """End the forward pass of this rank; the next one continues with these states."""
        ...
