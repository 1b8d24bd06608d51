"""Sequence packing: several documents or pairs per row, isolated from one another by the attention mask."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from ..tokenizers.protocol import Encoder
from .encoded import Encoded
from .ragged import Ragged
from .rows import Rows, framed_documents, predicting


def pack(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Rows of document numbers whose lengths add up to `width` at most: best fit, longest first.

    Best-fit decreasing uses at most 11/9 of the least possible number of rows, plus one (Johnson 1973). Raises
    ValueError for a document that is longer than a row: split it first.
    """
    rows: list[list[int]] = []
    space: list[tuple[int, int]] = []  # the space left in each row, and its number; sorted
    for document in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        length = lengths[document]
        if length > width:
            raise ValueError(f"a document of {length} tokens doesn't fit a row of {width}")
        tightest = bisect.bisect_left(space, (length, -1))
        if tightest == len(space):
            rows.append([document])
            bisect.insort(space, (width - length, len(rows) - 1))
        else:
            left, row = space.pop(tightest)
            rows[row].append(document)
            bisect.insort(space, (left - length, row))
    return rows


def pack_pairs(sources: Sequence[int], targets: Sequence[int], width: int) -> list[list[int]]:
    """Rows of pair numbers whose sources, and whose targets, add up to `width` at most.

    Best fit, longest first, in two dimensions: of the rows with room on both sides, a pair goes to the one with the least
    space left. Raises ValueError for a pair with a side longer than a row.
    """
    sizes = np.stack([np.asarray(sources, np.int64), np.asarray(targets, np.int64)], 1).reshape(-1, 2)
    if sizes.max(initial=0) > width:
        raise ValueError(f"a pair with a side of {sizes.max()} tokens doesn't fit a row of {width}")
    rows: list[list[int]] = []
    space = np.full((len(sizes), 2), -1)  # the space left on both sides of each row
    for pair in np.argsort(-sizes.max(1), kind="stable").tolist():
        left = space[: len(rows)] - sizes[pair]
        tightness = np.where(left.min(1) >= 0, left.sum(1), 2 * width + 1)
        if rows and tightness.min() <= 2 * width:
            row = int(tightness.argmin())
            rows[row].append(pair)
        else:
            row = len(rows)
            rows.append([pair])
            space[row] = width
        space[row] -= sizes[pair]
    return rows


def packed_rows(encoded: Encoded, tokenizer: Encoder, context: int) -> Rows:
    """Documents packed into rows of `context` tokens, isolated from one another; a longer one is split."""
    documents = predicting(framed_documents(encoded, tokenizer))
    counts = -(-(documents.lengths - 1) // context)
    done = context * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    starts = np.repeat(documents.starts, counts) + done
    lengths = np.minimum(context, np.repeat(documents.lengths - 1, counts) - done)
    flat = documents.flat
    return packed(Rows(Ragged(flat, starts, lengths), Ragged(flat, starts + 1, lengths)), context)


def packed_pairs(rows: Rows, width: int) -> Rows:
    """Rows of one pair each, packed into rows of `width` source and `width` target tokens.

    Pair n of a row is segment n on both sides, so cross-attention isolates it, too.
    """
    assert rows.source is not None
    members = pack_pairs(rows.source.lengths.tolist(), rows.inputs.lengths.tolist(), width)
    inputs, documents = _laid(rows.inputs, members)
    source, source_documents = _laid(rows.source, members)
    return Rows(inputs, _laid(rows.labels, members)[0], source, documents, source_documents)


def packed(rows: Rows, width: int) -> Rows:
    """Rows of one sequence each, packed into rows of `width` tokens, isolated from one another."""
    members = pack(rows.inputs.lengths.tolist(), width)
    inputs, documents = _laid(rows.inputs, members)
    types, roles = (None if part is None else _laid(part, members)[0] for part in (rows.token_types, rows.roles))
    return Rows(inputs, _laid(rows.labels, members)[0], documents=documents, token_types=types, roles=roles)


def _laid(parts: Ragged, members: list[list[int]]) -> tuple[Ragged, tuple[tuple[int, ...], ...]]:
    """The sequences of each row, concatenated, and their lengths."""
    order = np.asarray([i for row in members for i in row], np.int64)
    lengths = parts.lengths.tolist()
    documents = tuple(tuple(lengths[i] for i in row) for row in members)
    return Ragged.runs(parts.take(order).compact().flat, [sum(row) for row in documents]), documents
