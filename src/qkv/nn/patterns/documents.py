"""Documents of packed rows: their numbers and lengths, and the place of each token in the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn import functional as F

from ...core.layout import Layout
from ...core.ranks import draws_alike, first_row


def document_numbers(layout: Layout) -> Int[Tensor, "B T"] | None:
    """Numbers 0, 1, … < T of the runs of equal segments in each row; None if every row is one document."""
    if layout.segments is None or layout.one_segment:
        return None
    segments = layout.segments
    return F.pad((segments[:, 1:] != segments[:, :-1]).long().cumsum(1), (1, 0))


def document_lengths(layout: Layout) -> Int[Tensor, "B T"]:
    """The length of each token's document so far: its largest position plus one.

    (B or 1, 1) if every row is one document.
    """
    positions = layout.positions[..., 0]
    run = document_numbers(layout)
    if run is None:
        return positions.amax(1, keepdim=True) + 1
    longest = positions.new_zeros(run.shape).scatter_reduce(1, run, positions, "amax")
    return longest.gather(1, run) + 1


@dataclass(frozen=True, eq=False)
class TokenPlaces:
    """The places, in the whole batch, of the tokens, heads and channels that this rank computes.

    document: the index of each token's document in the batch; None if each row is one document.
    token:    the index of each token in its document; None if it is the index in the row.
    head, channel: the indices of the first head and the first channel.
    part:     the index of this rank's part of the tokens.
    """

    document: Int[Tensor, "B T"] | None = None
    token: Int[Tensor, "B T"] | None = None
    head: int = 0
    channel: int = 0
    part: int = 0

    def fit(self, rows: int, tokens: int) -> bool:
        """Whether a tensor with these numbers of rows and tokens can have these places."""
        number, document = self.token, self.document
        placed = number is None or (number.shape[1] == tokens and number.shape[0] in (1, rows))
        return placed and (document is None or document.shape == (rows, tokens))

    def over(self, divide: Callable[[Tensor], Tensor]) -> TokenPlaces:
        """Return the places of a part of the tokens. `divide` selects the part along the second-to-last axis."""
        document, token = (None if x is None else divide(x[..., None])[..., 0] for x in (self.document, self.token))
        return replace(self, document=document, token=token)


_current: ContextVar[TokenPlaces | None] = ContextVar("places", default=None)


def current_places() -> TokenPlaces | None:
    """Return the places that `placed` has set; None in compiled graphs."""
    return None if torch.compiler.is_compiling() else _current.get()


@contextmanager
def placed(places: TokenPlaces | None) -> Iterator[None]:
    """Set the places of the tokens inside the block. None means that each row is one document, with tokens 0, 1, 2, …"""
    before = _current.set(places)
    try:
        yield
    finally:
        _current.reset(before)


def placing(places: TokenPlaces | None) -> AbstractContextManager[None]:
    """Return `placed(places)`, or a null context if nothing changes or in compiled graphs."""
    if torch.compiler.is_compiling() or (places is None and current_places() is None):
        return nullcontext()
    return placed(places)


_numbers: ContextVar[Int[Tensor, " B"] | None] = ContextVar("numbers", default=None)


@contextmanager
def numbered(documents: Int[Tensor, " B"] | None) -> Iterator[None]:
    """Number the rows inside the block, each of which is one document. Media in texts are batched apart from the rows that
    contain them, so they need numbers for dropout. None changes nothing."""
    if documents is None:
        yield
        return
    before = _numbers.set(documents)
    try:
        yield
    finally:
        _numbers.reset(before)


def places_of(layout: Layout) -> TokenPlaces | None:
    """Return the places of the tokens if the layout is packed or padded on the left, or if `numbered` is active.

    Return None otherwise, on devices other than CPUs, and in compiled graphs. Rows must be whole, not divided among ranks.
    """
    if torch.compiler.is_compiling() or layout.device.type != "cpu":
        return None
    documents = _numbers.get()
    if documents is not None:
        return TokenPlaces(documents[:, None].expand(-1, layout.shape[1]).int().contiguous())
    if layout.padding in ("none", "right") and (layout.segments is None or layout.one_segment):
        return None
    run, count = document_numbers(layout), layout.valid.long().cumsum(1) - 1
    if run is None:
        return TokenPlaces(token=count.clamp(min=0).int())
    first = torch.full_like(count, count.shape[1]).scatter_reduce(1, run, count.clamp(min=0), "amin")
    documents = torch.where(layout.valid, run + 1, 0).amax(1)
    before = first_row() + documents.cumsum(0) - documents
    return TokenPlaces((before[:, None] + run).int(), (count - first.gather(1, run)).clamp(min=0).int())


def numbers_inside(layout: Layout, inside: Bool[Tensor, "B T"], sizes: Sequence[int]) -> Int[Tensor, " N"] | None:
    """Return a number for each medium in the rows. It combines the medium's document and first token, modulo 2³¹, so it is
    the same on every rank that has the row. Return None unless all ranks draw alike.

    inside: the tokens of media. sizes: the number of tokens of each medium, in order.
    """
    if not draws_alike() or layout.device.type != "cpu" or not sizes:
        return None
    rows, columns = inside.nonzero(as_tuple=True)
    first = torch.tensor(sizes).cumsum(0) - torch.tensor(sizes)
    rows, columns = rows[first], columns[first]
    places = places_of(layout)
    if places is not None and places.token is not None:
        token = places.token.expand(len(inside), -1)[rows, columns]
        document = rows + first_row() if places.document is None else places.document[rows, columns]
    else:
        document, token = rows + first_row(), columns
    return ((document.long() << 16) + token) & 0x7FFFFFFF
