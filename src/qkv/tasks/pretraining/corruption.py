"""Corruption of text for pre-training: masking, spans with sentinels, infilling, permutation; seeded, all rows at once.

Every function takes the ids of many rows as a `Ragged` without gaps, and what is known of each token as an array beside
`rows.flat`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.batch import IGNORE
from ...data.batching.ragged import Ids, Index, Ragged

Flags = NDArray[np.bool_]
SPAN_P, SPAN_MOST = 0.2, 10  # words in a span: ℓ ~ Geo(0.2), at most 10, of 3.8 in the mean (SpanBERT)


def chosen(lengths: Index, counts: Index, random: np.random.Generator) -> Flags:
    """For every row `counts` of its `lengths` items, each choice as likely as any other: one flag an item."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order = np.argsort(rows + random.random(len(rows), np.float32))
    found = np.zeros(len(rows), bool)
    found[order] = _within(lengths) < np.repeat(counts, lengths)
    return found


def windows(texts: Ragged, width: int, random: np.random.Generator | None) -> tuple[Ragged, Index]:
    """Texts cut into rows of at most `width` tokens, and the text that each row is of; all of a text is in its rows.

    With `random`, the first row of a longer text ends at a random place, so that each epoch has others. A token left alone
    at the end of a text is read with the one before it; texts of fewer than two tokens have no row.
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
    """Where spans of whole words begin, given where words do (Joshi et al. 2020, SpanBERT): ℓ ~ Geo(0.2), ℓ ≤ 10."""
    words = np.flatnonzero(begins)
    shares = SPAN_P * (1 - SPAN_P) ** np.arange(SPAN_MOST)
    lengths = 1 + np.searchsorted(np.cumsum(shares / shares.sum()), random.random(len(words) + 1))
    ends = np.cumsum(np.minimum(lengths, SPAN_MOST))
    found = np.zeros(len(begins), bool)
    found[words[ends[ends < len(words)]]] = True
    found[rows.starts[rows.lengths > 0]] = True
    return found


def picked(rows: Ragged, free: Flags, begins: Flags, rate: float, random: np.random.Generator) -> Flags:
    """Which tokens are to be predicted: round(rate · n) of a row's n free ones, in units that are picked as a whole.

    A unit (a token, a word, a span) goes from where `begins` to the next; one begins with every row. What does not divide
    into units is rounded to the nearest of them, and a row with anything free has at least one.
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
    """The picked tokens replaced (Devlin et al. 2019, §3.1): by the `mask`, by any of `words`, or left as they are.

    shares:   of masks, and of random words; the rest stays.
    together: where units begin that share one draw, as SpanBERT's spans do; by default each token has its own.
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
    """What stood in the picked places; −100 everywhere else."""
    return np.where(which, ids, np.int32(IGNORE))


# -- span corruption ------------------------------------------------------------------------------------------------


def noise_spans(lengths: Index, rate: float, mean: float, random: np.random.Generator) -> Flags:
    """Which tokens are noise: round(rate · n) of a row's n, in round(rate · n / mean) spans between which others stand
    (Raffel et al. 2020, §3.1.4; as in its code a row begins with what stays and ends with noise). Rows have two tokens
    or more, of which at least one is noise and one is not.
    """
    noise = np.clip(np.rint(rate * lengths).astype(np.int64), 1, lengths - 1)
    count = np.minimum(np.maximum(np.rint(noise / mean).astype(np.int64), 1), lengths - noise)
    kept, lost = (_parted(sizes, count, random) for sizes in (lengths - noise, noise))
    return np.repeat(np.tile([False, True], len(lost)), np.stack([kept, lost], 1).ravel())


def _parted(sizes: Index, counts: Index, random: np.random.Generator) -> Index:
    """The lengths of `counts` parts of each of `sizes`, at least 1 long; all ways to part are as likely."""
    rest = sizes - 1
    cuts = np.ones(int(sizes.sum()), bool)  # the first item of each begins a part; others do by chance
    cuts[_within(sizes) > 0] = chosen(rest, counts - 1, random)
    return np.diff(np.append(np.flatnonzero(cuts), len(cuts)))


def with_sentinels(rows: Ragged, noise: Flags, sentinels: Ids) -> tuple[Ragged, Ragged]:
    """(inputs, targets): each span of noise becomes a sentinel in the input, and stands behind that sentinel in the target,
    which ends in one more where the row goes on after its last span (Raffel et al. 2020, figure 2).

    Raises ValueError where a row has more spans than there are sentinels.
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
    stays = ~noise | first
    inputs = np.where(first, sentinels[_number(first, row)], rows.flat)[stays]
    copies = noise.astype(np.int64) + first + last
    at = np.repeat(np.arange(len(noise)), copies)
    marks = np.zeros(len(at), bool)
    marks[(np.cumsum(copies) - copies)[first | last]] = True
    targets = np.where(marks, sentinels[_number(marks, row[at])], rows.flat[at])
    sizes = [np.bincount(row, some, len(rows)).astype(np.int64) for some in (stays, copies)]
    return Ragged.runs(inputs, sizes[0]), Ragged.runs(targets, sizes[1])


def _number(marks: Flags, row: Index) -> Index:
    """The how-manieth of its row each mark is, from 0; 0 where there is none."""
    total = np.cumsum(marks)
    begins = np.concatenate([[True], row[1:] != row[:-1]]) if len(row) else np.zeros(0, bool)
    before = np.maximum.accumulate(np.where(begins, total - marks, 0)) if len(row) else total
    return np.where(marks, total - before - 1, 0)


# -- denoising ------------------------------------------------------------------------------------------------------


def infilled(rows: Ragged, rate: float, mean: float, mask: int, random: np.random.Generator) -> Ragged:
    """Text infilling (Lewis et al. 2020, §2.2): spans of Poisson(mean) tokens, round(rate · n) tokens in all, are replaced
    by one mask each; a span of none is a mask put in between.
    """
    budget = np.rint(rate * rows.lengths).astype(np.int64)
    drawn = 8 + (2 * budget / mean).astype(np.int64)  # spans, of which the first ones that fill the budget count
    owner = np.repeat(np.arange(len(rows)), drawn)
    sizes = random.poisson(mean, len(owner))
    total = np.cumsum(sizes)
    start = (np.cumsum(drawn) - drawn)[owner]
    before = total - sizes - (total - sizes)[start]
    counts = before < budget[owner]
    sizes = np.minimum(sizes, budget[owner] - before)[counts]
    owner = owner[counts]
    lost = np.bincount(owner, sizes, len(rows)).astype(np.int64)
    number = np.bincount(owner, minlength=len(rows))
    slots = rows.lengths - lost + number  # what is read of a row: tokens that stay, and masks
    is_mask = chosen(slots, number, random)
    width = np.ones(len(is_mask), np.int64)
    width[is_mask] = sizes
    # A mask at a row's very end may stand for nothing, so that its place is past the last token: any id will do there.
    place = np.minimum(np.cumsum(width) - width, max(len(rows.flat) - 1, 0))
    return Ragged.runs(np.where(is_mask, np.int32(mask), rows.flat[place]), slots)


def permuted(rows: Ragged, begins: Flags, random: np.random.Generator) -> Ragged:
    """The sentences of each row in an order of chance (Lewis et al. 2020, §2.2). One begins with every row."""
    noise = random.random(int(begins.sum()), np.float32)[np.cumsum(begins) - 1]
    return Ragged.runs(rows.flat[np.argsort(_row_of(rows) + noise, kind="stable")], rows.lengths)


# -- places ---------------------------------------------------------------------------------------------------------


def begins_of(rows: Ragged, ends: Flags) -> Flags:
    """Where something begins: with each row, and behind every token that `ends` it."""
    found = np.concatenate([[True], ends[:-1]]) if len(ends) else ends.copy()
    found[rows.starts[rows.lengths > 0]] = True
    return found


def _row_of(rows: Ragged) -> Index:
    return np.repeat(np.arange(len(rows)), rows.lengths)


def _within(lengths: Index) -> Index:
    """0 … n − 1 for each of `lengths`."""
    before: NDArray[Any] = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(before, lengths)
