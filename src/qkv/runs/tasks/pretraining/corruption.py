"""Corruption of text for pre-training: masking, spans with sentinels, infilling, permutation; seeded, all rows at once.

Every function takes the ids of many rows as a `Ragged` without gaps, and properties of tokens as arrays parallel to
`rows.flat`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....core.batch import IGNORE
from ....data.batching.ragged import Ids, Index, Ragged

Flags = NDArray[np.bool_]
SPAN_P, SPAN_MOST = 0.2, 10  # words in a span: ℓ ~ Geo(0.2), at most 10, of 3.8 in the mean (SpanBERT)


def chosen(lengths: Index, counts: Index, random: np.random.Generator) -> Flags:
    """Choose `counts` of the `lengths` items of each row, uniformly at random: one flag per item."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(rows + random.random(len(rows), np.float32))
    flags = np.zeros(len(rows), bool)
    flags[order] = _within(lengths) < np.repeat(counts, lengths)
    return flags


def windows(texts: Ragged, width: int, random: np.random.Generator | None) -> tuple[Ragged, Index]:
    """Cut texts into rows of at most `width` tokens that cover them; also return the index of each row's text.

    With `random`, the first row of a longer text ends at a random position, so each epoch has different rows. A single
    token left at the end of a text gets a row with the token before it; texts of fewer than two tokens have no row.
    """
    first = np.full(len(texts), width, np.int64)
    if random is not None:
        first = np.where(texts.lengths > width, random.integers(min(2, width), width + 1, len(texts)), first)
    counts = np.where(texts.lengths < 2, 0, 1 + np.maximum(-(-(texts.lengths - first) // width), 0))
    owner = np.repeat(np.arange(len(texts)), counts)
    number = _within(counts)
    begin = np.where(number == 0, 0, first[owner] + (number - 1) * width)
    end = np.minimum(first[owner] + number * width, texts.lengths[owner])
    begin -= end - begin < 2
    return Ragged(texts.flat, texts.starts[owner] + begin, end - begin), owner


# -- masked language model ------------------------------------------------------------------------------------------


def spans(begins: Flags, rows: Ragged, random: np.random.Generator) -> Flags:
    """Flag the beginnings of spans of ℓ words, given the beginnings of words: ℓ ~ Geo(0.2), ℓ ≤ 10 (Joshi et al. 2020,
    SpanBERT)."""
    words = np.flatnonzero(begins)
    shares = SPAN_P * (1 - SPAN_P) ** np.arange(SPAN_MOST)
    lengths = 1 + np.searchsorted(np.cumsum(shares / shares.sum()), random.random(len(words) + 1))
    ends = np.cumsum(np.minimum(lengths, SPAN_MOST))
    flags = np.zeros(len(begins), bool)
    flags[words[ends[ends < len(words)]]] = True
    flags[rows.starts[rows.lengths > 0]] = True
    return flags


def picked(rows: Ragged, free: Flags, begins: Flags, rate: float, random: np.random.Generator) -> Flags:
    """Select the tokens to predict: round(rate · n) of a row's n `free` ones, in units that are selected as a whole.

    A unit (a token, a word, a span) begins if `begins` is set, and with every row. The number of tokens is rounded to
    whole units, and a row with any free token has at least one unit.
    """
    unit = np.cumsum(begins) - 1
    sizes = np.bincount(unit, free, len(unit) and unit[-1] + 1).astype(np.int64)
    row_of = _row_of(rows)
    owner, live = row_of[np.flatnonzero(begins)], np.flatnonzero(sizes)
    order = live[np.argsort(owner[live] + random.random(len(live), np.float32))]
    total = np.bincount(row_of, free, len(rows)).astype(np.int64)
    before = np.cumsum(sizes[order]) - sizes[order] - (np.cumsum(total) - total)[owner[order]]
    budget = np.rint(rate * total)[owner[order]]
    taken = np.zeros(len(sizes), bool)
    taken[order] = (before == 0) | (before + sizes[order] / 2 <= budget)
    return taken[unit] & free


def hidden(
    ids: Ids,
    which: Flags,
    mask: int,
    words: Ids,
    random: np.random.Generator,
    shares: tuple[float, float] = (0.8, 0.1),
    together: Flags | None = None,
) -> Ids:
    """Replace the selected tokens (Devlin et al. 2019, §3.1) by the `mask` or by one of `words`, or leave them unchanged.

    shares:   of masks, and of random words; the rest is unchanged.
    together: flags the beginnings of units that share one draw, such as SpanBERT's spans; by default each token has its own.
    """
    at = np.flatnonzero(which)
    if together is None:
        draw = random.random(len(at))
    else:
        draw = random.random(len(ids))[(np.cumsum(together) - 1)[at]]
    out = ids.copy()
    out[at[draw < shares[0]]] = mask
    others = at[(draw >= shares[0]) & (draw < sum(shares))]
    out[others] = words[random.integers(len(words), size=len(others))]
    return out


def labels_of(ids: Ids, which: Flags) -> Ids:
    """Labels: the selected ids; −100 everywhere else."""
    return np.where(which, ids, np.int32(IGNORE))


# -- span corruption ------------------------------------------------------------------------------------------------


def noise_spans(lengths: Index, rate: float, mean: float, random: np.random.Generator) -> Flags:
    """Select noise: round(rate · n) of a row's n tokens, in round(rate · n / mean) spans that other tokens separate (Raffel
    et al. 2020, §3.1.4; as in its code, a row begins with other tokens and ends with noise). Rows have two tokens or more,
    of which at least one is noise and one is not.
    """
    noise = np.clip(np.rint(rate * lengths).astype(np.int64), 1, lengths - 1)
    count = np.minimum(np.maximum(np.rint(noise / mean).astype(np.int64), 1), lengths - noise)
    kept, lost = (_partition(sizes, count, random) for sizes in (lengths - noise, noise))
    return np.repeat(np.tile([False, True], len(lost)), np.stack([kept, lost], 1).ravel())


def _partition(sizes: Index, counts: Index, random: np.random.Generator) -> Index:
    """Divide each size into `counts` parts of at least 1, uniformly at random; return the lengths of all parts."""
    cuts = np.ones(int(sizes.sum()), bool)  # the first item of each size begins a part; others do at random
    cuts[_within(sizes) > 0] = chosen(sizes - 1, counts - 1, random)
    return np.diff(np.append(np.flatnonzero(cuts), len(cuts)))


def with_sentinels(rows: Ragged, noise: Flags, sentinels: Ids) -> tuple[Ragged, Ragged]:
    """(inputs, targets): a sentinel replaces each span of noise in the input; the target has each span after its sentinel,
    and ends with one more sentinel if the row continues after its last span (Raffel et al. 2020, figure 2).

    Raises ValueError if a row has more spans than there are sentinels.
    """
    first = noise & ~(np.concatenate([[False], noise[:-1]]) & (_within(rows.lengths) > 0))
    last = np.zeros(len(noise), bool)
    last[(rows.starts + rows.lengths - 1)[rows.lengths > 0]] = True
    last &= ~noise
    row = _row_of(rows)
    needed = int(np.bincount(row, first | last, len(rows)).max(initial=0))
    if needed > len(sentinels):
        raise ValueError(
            f"a row has {needed} spans to mark and there are {len(sentinels)} sentinels; raise task.sentinels, or lower "
            "batching.context"
        )
    kept = ~noise | first
    inputs = np.where(first, sentinels[_number(first, row)], rows.flat)[kept]
    copies = noise.astype(np.int64) + first + last
    at = np.repeat(np.arange(len(noise)), copies)
    marks = np.zeros(len(at), bool)
    marks[(np.cumsum(copies) - copies)[first | last]] = True
    targets = np.where(marks, sentinels[_number(marks, row[at])], rows.flat[at])
    sizes = [np.bincount(row, some, len(rows)).astype(np.int64) for some in (kept, copies)]
    return Ragged.runs(inputs, sizes[0]), Ragged.runs(targets, sizes[1])


def _number(marks: Flags, row: Index) -> Index:
    """Number the marks within each row, from 0; 0 if there is no mark."""
    total = np.cumsum(marks)
    begins = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    before = np.maximum.accumulate(np.where(begins, total - marks, 0)) if len(row) else total
    return np.where(marks, total - before - 1, 0)


# -- denoising ------------------------------------------------------------------------------------------------------


def infilled(rows: Ragged, rate: float, mean: float, mask: int, random: np.random.Generator) -> Ragged:
    """Text infilling (Lewis et al. 2020, §2.2): spans of Poisson(mean) tokens, round(rate · n) tokens in all, are replaced
    by one mask each; a span of length 0 inserts a mask.
    """
    budget = np.rint(rate * rows.lengths).astype(np.int64)
    draws = 8 + (2 * budget / mean).astype(np.int64)  # spans, of which those count that fill the budget first
    owner = np.repeat(np.arange(len(rows)), draws)
    sizes = random.poisson(mean, len(owner))
    total = np.cumsum(sizes)
    start = (np.cumsum(draws) - draws)[owner]
    before = total - sizes - (total - sizes)[start]
    counts = before < budget[owner]
    sizes = np.minimum(sizes, budget[owner] - before)[counts]
    owner = owner[counts]
    lost = np.bincount(owner, sizes, len(rows)).astype(np.int64)
    number = np.bincount(owner, minlength=len(rows))
    slots = rows.lengths - lost + number  # of a row in the input: unchanged tokens and masks
    is_mask = chosen(slots, number, random)
    width = np.ones(len(is_mask), np.int64)
    width[is_mask] = sizes
    # A mask of length 0 at the end of the last row has a place past the last token; any id will do there.
    place = np.minimum(np.cumsum(width) - width, max(len(rows.flat) - 1, 0))
    return Ragged.runs(np.where(is_mask, np.int32(mask), rows.flat[place]), slots)


def permuted(rows: Ragged, begins: Flags, random: np.random.Generator) -> Ragged:
    """Shuffle the sentences of each row (Lewis et al. 2020, §2.2). A sentence begins with every row."""
    noise = random.random(int(begins.sum()), np.float32)[np.cumsum(begins) - 1]
    return Ragged.runs(rows.flat[np.argsort(_row_of(rows) + noise, kind="stable")], rows.lengths)


# -- places ---------------------------------------------------------------------------------------------------------


def begins_of(rows: Ragged, ends: Flags) -> Flags:
    """Flag beginnings: the first token of each row, and every token after one that `ends` the unit before."""
    begins = np.concatenate([[True], ends[:-1]]) if len(ends) else ends.copy()
    begins[rows.starts[rows.lengths > 0]] = True
    return begins


def _row_of(rows: Ragged) -> Index:
    return np.repeat(np.arange(len(rows)), rows.lengths)


def _within(lengths: Index) -> Index:
    """0 … n − 1 for each of `lengths`."""
    before: NDArray[Any] = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(before, lengths)
