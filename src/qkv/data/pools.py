"""Pools: a stretch of an epoch's examples, tokenized, sorted by length and cut into batches of arrays."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.batch import IGNORE, Batch
from ..core.layout import Layout
from . import rows as making
from .encoding import Encoded, Encoder, Memory, Reach, Reader, Speak, speaking
from .ragged import Index
from .rows import Limits, Rows
from .shuffle import Shuffle, mix
from .sources import Counts, Example, Source, Split, Table, order

if TYPE_CHECKING:
    from .batching import Batching

Array = NDArray[np.int64]

_CHARACTERS_A_TOKEN = 64  # no text has so many on average: a longer text is over-long before it is tokenized


@dataclass(frozen=True)
class Cut:
    """A batch in arrays, which travel between processes more cheaply than tensors."""

    ids: Array  # (B, T): what the (decoder) model reads
    labels: Array
    lengths: list[int]
    documents: tuple[tuple[int, ...], ...] = ()
    source: Array | None = None
    source_lengths: list[int] | None = None
    source_documents: tuple[tuple[int, ...], ...] = ()
    texts: tuple[Example, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(self.lengths) + sum(self.source_lengths or ())

    @property
    def slots(self) -> int:
        return self.ids.size + (0 if self.source is None else self.source.size)

    def batch(self, position: dict[str, Any]) -> Batch:
        ids, layout = torch.from_numpy(self.ids), _layout(self.documents, self.lengths, self.ids.shape[1])
        inputs: dict[str, Any] = {"ids": ids, "layout": layout}
        if self.source is not None and self.source_lengths is not None:
            inputs = {
                "ids": torch.from_numpy(self.source),
                "layout": _layout(self.source_documents, self.source_lengths, self.source.shape[1]),
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


def _layout(documents: Sequence[Sequence[int]], lengths: list[int], width: int) -> Layout:
    return Layout.packed(documents, width) if documents else Layout.from_lengths(lengths, width)


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
    """Makes pools: `build(epoch, number)` gives the same one whenever and wherever it is called.

    `stopped` tells a build in another thread that nobody waits for it.
    """

    source: Source
    tokenizer: Encoder
    batching: Batching
    seq2seq: bool
    split: Split
    seed: int
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._opened: dict[int, Table] = {}
        self._opening = threading.Lock()
        self._memory: Memory | None = None

    def __reduce__(self) -> tuple[Any, ...]:  # an open table holds memory maps, which don't pickle
        return Pools, (self.source, self.tokenizer, self.batching, self.seq2seq, self.split, self.seed)

    def table(self, epoch: int) -> Table:
        with self._opening:
            if epoch not in self._opened:
                self._opened = {e: table for e, table in self._opened.items() if e == epoch - 1}
                self._opened[epoch] = self.source.table(self.split, seed=self.seed, epoch=epoch)
            return self._opened[epoch]

    def sequential(self, epoch: int) -> bool:
        """Whether the examples can only be read in their order."""
        return getattr(self.table(epoch), "sequential", False)

    def examples(self, epoch: int) -> int:
        """Entries in an epoch's table; 0 where they are counted only as they are read."""
        return 0 if self.sequential(epoch) else len(self.table(epoch))

    def count(self, epoch: int) -> int:
        """Pools in an epoch."""
        return -(-len(self.table(epoch)) // self._size(epoch))

    def _size(self, epoch: int) -> int:
        pool = self.batching.pool_size(self.seq2seq, self.source.fixed)
        return max(1, pool // getattr(self.table(epoch), "weight", 1))

    @property
    def _shuffles(self) -> bool:
        return self.batching.shuffle and self.split == "train"

    def build(self, epoch: int, number: int) -> Pool:
        table, counts = self.table(epoch), Counts()
        found = self._reader(table).read(table, self._entries(epoch, number), self._speak(epoch), counts)
        random = Random(mix(self.seed, epoch, number)) if self._shuffles else None
        cuts: list[Cut] = []
        if found is not None:
            sort = random is not None or not found.running  # in evaluation, a text is read as it stands
            cuts = self._cuts(self._rows(found, random, counts), random, sort)
        counts.tokens = sum(cut.tokens for cut in cuts)
        counts.slots = sum(cut.slots for cut in cuts)
        return Pool(epoch, number, number == self.count(epoch) - 1, self.examples(epoch), cuts, counts)

    # -- examples -----------------------------------------------------------------------------------------------

    def _entries(self, epoch: int, number: int) -> Index:
        """Which of the table's entries are in a pool. A stream's pools are shuffled, not what is in them."""
        table, size = self.table(epoch), self._size(epoch)
        seed = mix(self.seed, epoch) if self._shuffles and not self.sequential(epoch) else None
        if seed is not None and self.batching.rows == "stream":
            number, seed = int(Shuffle(self.count(epoch), seed)(np.array([number]))[0]), None
        return order(table, number * size, (number + 1) * size, seed)

    def _reader(self, table: Table) -> Reader:
        batching, training = self.batching, self.split == "train"
        longest = batching.max_length if self.seq2seq else batching.context
        budget = (batching.cache << 20) // max(1, batching.processes)
        if training and self.source.fixed and budget and not self._dropout and self._memory is None:
            self._memory = Memory(len(table), budget)
        reach = Reach(longest * _CHARACTERS_A_TOKEN, batching.over_long == "skip")
        return Reader(reach, not training, self._memory, self.stopped.is_set, self.tokenizer)

    @property
    def _dropout(self) -> bool:
        """Whether training texts are tokenized by chance."""
        return self.split == "train" and (getattr(self.tokenizer, "dropout", 0) or 0) > 0

    def _speak(self, epoch: int) -> Speak:
        return speaking(self.tokenizer, mix(self.seed, epoch) if self._dropout else None)

    # -- rows and batches ---------------------------------------------------------------------------------------

    def _rows(self, found: Encoded, random: Random | None, counts: Counts) -> Rows:
        batching, tokenizer = self.batching, self.tokenizer
        if self.seq2seq and (found.running or found.conversations):
            what = "conversations" if found.conversations else "running text"
            raise ValueError(
                f"the {self.source.kind or type(self.source).__name__} source gives {what}; an encoder-decoder needs "
                "pairs of source and target"
            )
        if self.seq2seq:
            rows = making.pair_rows(found, tokenizer, Limits(batching.max_length, batching.over_long), counts)
            return making.packed_pairs(rows, batching.context) if batching.packing else rows
        if not found.running:
            limits = Limits(batching.context, batching.over_long)
            if found.conversations:
                rows = making.conversation_rows(found, limits, counts)
            else:
                rows = making.prompt_rows(found, tokenizer, limits, counts)
            return making.packed_prompts(rows, batching.context) if batching.packing else rows
        if batching.packing:
            return making.packed_rows(found, tokenizer, batching.context)
        if batching.rows == "stream":
            return making.window_rows(found, tokenizer, batching.context, random)
        return making.running_rows(found, tokenizer, batching.context, random)

    def _cuts(self, rows: Rows, random: Random | None, sort: bool) -> list[Cut]:
        """The batches: rows that are alike in length together, in an order of chance."""
        if random is not None:
            rows = rows.take(Shuffle(len(rows), random.getrandbits(63))(np.arange(len(rows))))
        if sort:
            rows = rows.take(by_length(rows.inputs.lengths, rows.source_lengths))
        edges = cut_rows(rows.inputs.lengths, rows.source_lengths, self.batching.tokens, self.batching.max_rows)
        pad = self.tokenizer.pad_id or 0  # which id stands in the padding makes no difference: layouts say what is real
        cuts = [_collate(rows.take(np.arange(a, b)), pad) for a, b in pairwise(edges)]
        if random is not None:
            random.shuffle(cuts)
        return cuts


def by_length(lengths: Index, source_lengths: Index) -> Index:
    """An order in which neighbors are alike: by the longer side, then along the shorter, up and down in turn.

    Both sides of a pair vary, and a batch is as wide as the longest of each. Rows whose longer side is n are an angle
    in the plane of lengths (n wide and up to n high, or the other way around); the order walks along each angle and on
    to the next where it ends. Stable: what came by chance breaks ties.
    """
    longer = np.maximum(lengths, source_lengths)
    difference = lengths - source_lengths
    return np.lexsort((np.where(longer % 2 == 1, difference, -difference), longer))


def cut_rows(lengths: Index, source_lengths: Index, tokens: int, max_rows: int | None) -> list[int]:
    """Where each batch begins, and the end: rows in order, at most `tokens` slots (and `max_rows` rows) once padded."""
    edges = [0]
    most = sys.maxsize if max_rows is None else max_rows
    n = wide = wide_source = 0
    for i, (length, source) in enumerate(zip(lengths.tolist(), source_lengths.tolist(), strict=True)):
        wide, wide_source, n = max(wide, length), max(wide_source, source), n + 1
        if n > 1 and (n * (wide + wide_source) > tokens or n > most):
            edges.append(i)
            n, wide, wide_source = 1, length, source
    return [*edges, len(lengths)] if n else edges


def _collate(rows: Rows, pad: int) -> Cut:
    return Cut(
        ids=rows.inputs.padded(pad),
        labels=rows.labels.padded(IGNORE),
        lengths=rows.inputs.lengths.tolist(),
        documents=rows.documents,
        source=rows.source.padded(pad) if rows.source is not None else None,
        source_lengths=rows.source.lengths.tolist() if rows.source is not None else None,
        source_documents=rows.source_documents,
        texts=rows.examples,
    )
