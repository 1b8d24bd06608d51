"""Pools: a stretch of an epoch's examples, tokenized, sorted by length and cut into batches of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.batch import IGNORE, Batch
from ..core.layout import Layout
from . import rows as making
from .rows import Encoder, Limits, Row
from .shuffle import mix
from .sources import Counts, Example, Source, Split, Table, order, read

if TYPE_CHECKING:
    from .batching import Batching

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """A batch in arrays, which travel between processes more cheaply than tensors."""

    ids: Array  # (B, T): what the (decoder) model reads
    labels: Array
    lengths: list[int]
    documents: list[tuple[int, ...]] | None = None
    source: Array | None = None
    source_lengths: list[int] | None = None
    texts: tuple[Example, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(self.lengths) + sum(self.source_lengths or ())

    @property
    def slots(self) -> int:
        return self.ids.size + (0 if self.source is None else self.source.size)

    def batch(self, position: dict[str, Any]) -> Batch:
        ids, width = torch.from_numpy(self.ids), self.ids.shape[1]
        layout = Layout.packed(self.documents, width) if self.documents else Layout.from_lengths(self.lengths, width)
        inputs: dict[str, Any] = {"ids": ids, "layout": layout}
        if self.source is not None and self.source_lengths is not None:
            inputs = {
                "ids": torch.from_numpy(self.source),
                "layout": Layout.from_lengths(self.source_lengths, self.source.shape[1]),
                "target": ids,
                "target_layout": layout,
            }
        return Batch(
            inputs,
            labels=torch.from_numpy(self.labels),
            counts={"loss": int((self.labels != IGNORE).sum())},
            tokens=self.tokens,
            slots=self.slots,
            position=position,
            texts=self.texts,
        )


@dataclass(frozen=True)
class Pool:
    """The batches of one pool, in the order of training."""

    epoch: int
    number: int
    last: bool  # of its epoch
    examples: int  # entries in the epoch's table
    cuts: list[Cut]
    counts: Counts


@dataclass
class Pools:
    """Makes pools: `build(epoch, number)` gives the same one whenever and wherever it is called."""

    source: Source
    tokenizer: Encoder
    batching: Batching
    seq2seq: bool
    split: Split
    seed: int

    def __post_init__(self) -> None:
        self._opened: dict[int, Table] = {}

    def __reduce__(self) -> tuple[Any, ...]:  # an open table holds memory maps, which don't pickle
        return Pools, (self.source, self.tokenizer, self.batching, self.seq2seq, self.split, self.seed)

    def table(self, epoch: int) -> Table:
        if epoch not in self._opened:
            self._opened = {e: table for e, table in self._opened.items() if e == epoch - 1}
            self._opened[epoch] = self.source.table(self.split, seed=self.seed, epoch=epoch)
        return self._opened[epoch]

    def count(self, epoch: int) -> int:
        """Pools in an epoch."""
        return -(-len(self.table(epoch)) // self._size(epoch))

    def _size(self, epoch: int) -> int:
        return max(1, self.batching.pool // getattr(self.table(epoch), "weight", 1))

    @property
    def _shuffles(self) -> bool:
        return self.batching.shuffle and self.split == "train"

    def build(self, epoch: int, number: int) -> Pool:
        table, size, counts = self.table(epoch), self._size(epoch), Counts()
        indices = order(table, number * size, (number + 1) * size, mix(self.seed, epoch) if self._shuffles else None)
        examples = read(table, indices, counts)
        random = Random(mix(self.seed, epoch, number)) if self._shuffles else None
        groups = self._groups(examples, random, counts) if examples else []
        pad = self.tokenizer.pad_id or 0  # which id stands in the padding makes no difference: layouts say what is real
        cuts = [_collate(group, pad, keep_texts=self.split != "train") for group in groups]
        counts.tokens = sum(cut.tokens for cut in cuts)
        counts.slots = sum(cut.slots for cut in cuts)
        return Pool(epoch, number, number == self.count(epoch) - 1, len(table), cuts, counts)

    def _groups(self, examples: list[Example], random: Random | None, counts: Counts) -> list[list[Row]]:
        """The rows of each batch."""
        batching, running = self.batching, "text" in examples[0]
        if self.seq2seq and running:
            raise ValueError(
                f"the {self.source.kind or type(self.source).__name__} source gives running text; an encoder-decoder "
                "needs pairs of source and target"
            )
        if self.seq2seq:
            limits = Limits(batching.max_length, batching.over_long)
            rows = making.pair_rows(examples, self.tokenizer, limits, counts)
        elif not running:
            rows = making.prompt_rows(examples, self.tokenizer, Limits(batching.context, batching.over_long), counts)
            rows = making.packed_prompts(rows, batching.context) if batching.packing else rows
        elif batching.packing:
            rows = making.packed_rows(examples, self.tokenizer, batching.context)
        else:
            rows = making.contiguous_rows(examples, self.tokenizer, batching.context, random)
        if random is not None:
            random.shuffle(rows)
        if not running and not batching.packing:
            rows.sort(key=_length)  # stable: the shuffle before it breaks ties
        groups = cut_rows(rows, batching.tokens, batching.max_rows)
        if random is not None:
            random.shuffle(groups)
        return groups


def _length(row: Row) -> tuple[int, int]:
    """The longer side; among equals the difference of the sides, up and down in turn so that neighbors are alike."""
    target, source = len(row.inputs), len(row.source or ())
    longer = max(target, source)
    return longer, target - source if longer % 2 else source - target


def cut_rows(rows: Sequence[Row], tokens: int, max_rows: int | None) -> list[list[Row]]:
    """Rows in their order, cut into groups of at most `tokens` slots (and `max_rows` rows) once padded."""
    groups: list[list[Row]] = []
    longest = longest_source = 0
    for row in rows:
        length, source = len(row.inputs), len(row.source or ())
        if groups:
            wide, wide_source = max(longest, length), max(longest_source, source)
            n = len(groups[-1]) + 1
            if n * (wide + wide_source) <= tokens and (max_rows is None or n <= max_rows):
                groups[-1].append(row)
                longest, longest_source = wide, wide_source
                continue
        groups.append([row])
        longest, longest_source = length, source
    return groups


def _collate(rows: Sequence[Row], pad: int, keep_texts: bool) -> Cut:
    sources = [row.source for row in rows if row.source is not None]
    return Cut(
        ids=_padded([row.inputs for row in rows], pad),
        labels=_padded([row.labels for row in rows], IGNORE),
        lengths=[len(row.inputs) for row in rows],
        documents=[row.documents for row in rows] if rows[0].documents else None,
        source=_padded(sources, pad) if sources else None,
        source_lengths=[len(source) for source in sources] if sources else None,
        texts=tuple(row.example for row in rows if row.example is not None) if keep_texts else (),
    )


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Array:
    out = np.full((len(rows), max(len(row) for row in rows)), fill, dtype=np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
