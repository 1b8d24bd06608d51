"""Pairs of sentences for next-sentence prediction (BERT)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data.batching.ragged import Index, Ragged
from .corruption import Flags, begins_of

DRAWS = 4  # sentences that are tried where one is too long for what is left of a row


class Pairs(NamedTuple):
    """Rows of two stretches of text, several sentences each, and whether the second follows the first in its text.

    lonely: how many texts have no second sentence, and so are in no pair.
    """

    first: Ragged
    second: Ragged
    follows: Flags
    lonely: int


class _Sentences(NamedTuple):
    """Sentence i goes from edges[i] to edges[i + 1]; those of its text are low[i] … high[i] − 1."""

    edges: Index
    low: Index
    high: Index


def sentence_pairs(texts: Ragged, ends: Flags, room: int, random: np.random.Generator) -> Pairs:
    """As many sentences as `room` tokens hold, cut in two at a random one; half of the second parts are then those of
    another text, as long to within a sentence (Devlin et al. 2019, §3.1 and A.2).

    `texts` have no gaps; `ends` says of every token whether it is the last of its sentence. A sentence that is longer than
    half of the room is cut. A last sentence that is left alone is read with the one before it. Where there is only one
    text, what does not follow comes from elsewhere in it.
    """
    found = _sentences(texts, ends, max(room // 2, 1))
    begin, end, limit = _rows(found, room, random)
    alone = end - begin == 1
    begin = begin - (alone & (begin > found.low[begin]))
    paired = end - begin > 1
    lonely = int((~paired).sum())
    begin, end, limit = begin[paired], end[paired], limit[paired]
    middle = begin + 1 + (random.random(len(begin)) * (end - begin - 1)).astype(np.int64)
    first = found.edges[middle] - found.edges[begin]
    start, second = found.edges[middle], found.edges[end] - found.edges[middle]
    final = end == found.high[begin]
    other, length = _elsewhere(found, begin, end, np.where(final, second, limit - first), final, random)
    length = np.minimum(length, room - first)
    follows = (random.random(len(begin)) < 0.5) | (other < 0) | (other == middle)
    return Pairs(
        Ragged(texts.flat, found.edges[begin], first),
        Ragged(texts.flat, np.where(follows, start, found.edges[other]), np.where(follows, second, length)),
        follows,
        lonely,
    )


def _sentences(texts: Ragged, ends: Flags, longest: int) -> _Sentences:
    begins = begins_of(texts, ends)
    places = np.arange(len(begins))
    since = places - np.maximum.accumulate(np.where(begins, places, 0)) if len(begins) else places
    edges = np.append(np.flatnonzero(begins | (since % longest == 0)), len(begins))
    filled = texts.lengths > 0
    low = np.searchsorted(edges, texts.starts[filled])
    sizes = np.diff(np.append(low, len(edges) - 1))
    return _Sentences(edges, np.repeat(low, sizes), np.repeat(low + sizes, sizes))


def _rows(found: _Sentences, room: int, random: np.random.Generator) -> tuple[Index, Index, Index]:
    """First sentence of every row, the one after its last, and the tokens that it was to hold: fewer in a text's first row,
    by chance, so that each epoch has others."""
    edges, n = found.edges, len(found.low)
    rooms = np.full(n, room)
    heads = np.flatnonzero(found.low == np.arange(n))
    rooms[heads] = random.integers(room // 2, room + 1, len(heads))
    after = np.searchsorted(edges, edges[:-1] + rooms, "right") - 1
    following = np.clip(after, np.minimum(np.arange(n) + 2, found.high), found.high).tolist()  # two always fit
    cuts, at = [], 0
    while at < n:
        cuts.append(at)
        at = following[at]
    begin = np.asarray(cuts, np.int64)
    return begin, np.append(begin, n)[1:], rooms[begin]


def _elsewhere(
    found: _Sentences, begin: Index, end: Index, wanted: Index, final: Flags, random: np.random.Generator
) -> tuple[Index, Index]:
    """For each row a sentence of another text to begin with, and how many tokens to read from there; −1 where there is
    nothing else.

    Whole sentences: as many as `wanted` tokens hold, as in rows that go on until they are full; or, for rows that are
    `final` in their text, as near to it as they come. Else lengths would tell what follows and what does not.
    """
    edges, n = found.edges, len(found.low)
    low, high = found.low[begin], found.high[begin]
    only = high - low == n
    low, high = np.where(only, begin, low), np.where(only, end, high)
    others = n - (high - low)
    if not n:
        return begin, begin
    draws = (random.random((len(begin), DRAWS)) * others[:, None]).astype(np.int64)
    draws += (draws >= low[:, None]) * (high - low)[:, None]
    draws[others == 0] = 0
    fits = np.diff(edges)[draws] <= wanted[:, None]
    start = draws[np.arange(len(begin)), fits.argmax(1)]
    enough = np.searchsorted(edges, edges[found.high[start]] - wanted, "right") - 1  # no text is to end too soon
    start = np.minimum(start, np.maximum(enough, found.low[start]))
    after = np.searchsorted(edges, edges[start] + wanted, "right") - 1
    next_ = np.minimum(after + 1, n)
    after = np.where(final & (edges[next_] + edges[after] < 2 * (edges[start] + wanted)), next_, after)
    after = np.clip(after, start + 1, found.high[start])
    return np.where(others > 0, start, -1), edges[after] - edges[start]
