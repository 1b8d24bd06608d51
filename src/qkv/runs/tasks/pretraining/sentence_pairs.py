"""Sentence pairs for next-sentence prediction (BERT)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....data.batching.ragged import Index, Ragged
from .corruption import Flags, begins_of

DRAWS = 4  # random sentences to try, as one may be too long for the rest of a row


class SegmentPairs(NamedTuple):
    """Rows of two segments, several sentences each, and whether the second follows the first in its text.

    lonely: how many texts are in no pair, having no second sentence.
    """

    first: Ragged
    second: Ragged
    follows: Flags
    lonely: int


class _Sentences(NamedTuple):
    """Sentence i spans the tokens edges[i] … edges[i + 1] − 1; the sentences of its text are low[i] … high[i] − 1."""

    edges: Index
    low: Index
    high: Index


def sentence_pairs(texts: Ragged, ends: Flags, room: int, random: np.random.Generator) -> SegmentPairs:
    """Split runs of sentences of at most `room` tokens in two at a random sentence. Half of the second parts are
    replaced by parts of another text, of the same length to within a sentence (Devlin et al. 2019, §3.1 and A.2).

    `texts` have no gaps; `ends` flags the last token of every sentence. A sentence that is longer than half of the room is
    cut. A single sentence left at the end of a text gets a row with the one before it. If there is only one text, the
    replacements come from elsewhere in it.
    """
    sentences = _sentences(texts, ends, max(room // 2, 1))
    begin, end, limit = _rows(sentences, room, random)
    alone = end - begin == 1
    begin = begin - (alone & (begin > sentences.low[begin]))
    paired = end - begin > 1
    lonely = int((~paired).sum())
    begin, end, limit = begin[paired], end[paired], limit[paired]
    middle = begin + 1 + (random.random(len(begin)) * (end - begin - 1)).astype(np.int64)
    edges = sentences.edges
    first, start, second = edges[middle] - edges[begin], edges[middle], edges[end] - edges[middle]
    final = end == sentences.high[begin]
    other, length = _elsewhere(sentences, begin, end, np.where(final, second, limit - first), final, random)
    length = np.minimum(length, room - first)
    follows = (random.random(len(begin)) < 0.5) | (other < 0) | (other == middle)
    return SegmentPairs(
        Ragged(texts.flat, edges[begin], first),
        Ragged(texts.flat, np.where(follows, start, edges[other]), np.where(follows, second, length)),
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


def _rows(sentences: _Sentences, room: int, random: np.random.Generator) -> tuple[Index, Index, Index]:
    """The first sentence of each row, the one after its last, and the room of each row, which is random in the first row of
    a text, so each epoch has different rows."""
    edges, n = sentences.edges, len(sentences.low)
    rooms = np.full(n, room)
    heads = np.flatnonzero(sentences.low == np.arange(n))
    rooms[heads] = random.integers(room // 2, room + 1, len(heads))
    after = np.searchsorted(edges, edges[:-1] + rooms, "right") - 1
    following = np.clip(after, np.minimum(np.arange(n) + 2, sentences.high), sentences.high).tolist()  # two always fit
    cuts, at = [], 0
    while at < n:
        cuts.append(at)
        at = following[at]
    begin = np.asarray(cuts, np.int64)
    return begin, np.append(begin, n)[1:], rooms[begin]


def _elsewhere(
    sentences: _Sentences, begin: Index, end: Index, size: Index, final: Flags, random: np.random.Generator
) -> tuple[Index, Index]:
    """For each row a random sentence of another text, and how many tokens to read from there; −1 if there is no other.

    Sentences are whole: as many as fit in `size` tokens, as in rows that are filled; or for the `final` row of a text, as
    many as come closest to `size`. Otherwise lengths would reveal which segments follow.
    """
    edges, n = sentences.edges, len(sentences.low)
    low, high = sentences.low[begin], sentences.high[begin]
    only = high - low == n
    low, high = np.where(only, begin, low), np.where(only, end, high)
    others = n - (high - low)
    if not n:
        return begin, begin
    draws = (random.random((len(begin), DRAWS)) * others[:, None]).astype(np.int64)
    draws += (draws >= low[:, None]) * (high - low)[:, None]
    draws[others == 0] = 0
    fits = np.diff(edges)[draws] <= size[:, None]
    start = draws[np.arange(len(begin)), fits.argmax(1)]
    latest = (
        np.searchsorted(edges, edges[sentences.high[start]] - size, "right") - 1
    )  # `size` tokens are left from here
    start = np.minimum(start, np.maximum(latest, sentences.low[start]))
    after = np.searchsorted(edges, edges[start] + size, "right") - 1
    next_ = np.minimum(after + 1, n)
    after = np.where(final & (edges[next_] + edges[after] < 2 * (edges[start] + size)), next_, after)
    after = np.clip(after, start + 1, sentences.high[start])
    return np.where(others > 0, start, -1), edges[after] - edges[start]
