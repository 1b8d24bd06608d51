"""Pools of examples, as in torchtext's BucketIterator: tokenized, bucketed by length, and cut into NumPy batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from ...core.batch import IGNORE
from ...core.shuffle import Shuffle, mix
from ...tokenizers.protocol import Encoder
from ..batching import packing
from ..batching import rows as row_kinds
from ..batching.bucketing import batch_edges, bucketed_order
from ..batching.encoded import Encoded
from ..batching.encoding import CharacterLimit, EncodeTexts, Reader, encode_function, source_and_target_tokenizer
from ..batching.numpy_batch import NumpyBatch, PaddedLayout, count_labels
from ..batching.ragged import Index
from ..batching.rows import Limits, Rows
from ..batching.settings import Batching
from ..batching.token_cache import TokenCache
from ..source import Counts, Skipped, Source, Split, Table, order, read
from ..task import Item, RandomContext, Task, TextTask

_CHARACTERS_A_TOKEN = 64  # more than any text has on average: a longer text is over-long without being tokenized


@dataclass(frozen=True)
class Pool:
    """The batches of one pool, in the order of training."""

    epoch: int
    number: int
    last: bool  # of its epoch
    examples: int  # entries in the epoch's table; 0 where they are counted only as they are read
    length: int | None  # the same once the epoch has ended: known with its last pool
    cuts: list[NumpyBatch]
    counts: Counts


@dataclass
class Pools:
    """Builds pools: `build(epoch, number)` always returns the same one, in any process.

    `stopped` cancels a build that runs in another thread.
    """

    source: Source
    tokenizer: Encoder | None
    batching: Batching
    seq2seq: bool
    split: Split
    seed: int
    task: Task | None = None
    length: int | None = None  # entries of an epoch that is read in order, where somebody counted them
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._opened: dict[int, Table] = {}
        self._opening = threading.Lock()
        self._memory: TokenCache | None = None

    def __reduce__(self) -> tuple[Any, ...]:  # an open table holds memory maps, which don't pickle
        fields = (
            self.source,
            self.tokenizer,
            self.batching,
            self.seq2seq,
            self.split,
            self.seed,
            self.task,
            self.length,
        )
        return Pools, fields

    def table(self, epoch: int) -> Table:
        with self._opening:
            if epoch not in self._opened:
                self._opened = {e: table for e, table in self._opened.items() if e == epoch - 1}
                self._opened[epoch] = self.source.table(self.split, seed=self.seed, epoch=epoch)
            return self._opened[epoch]

    def sequential(self, epoch: int) -> bool:
        """Whether the examples can only be read in order."""
        return getattr(self.table(epoch), "sequential", False)

    def examples(self, epoch: int) -> int:
        """Entries in an epoch's table; 0 where they are counted only as they are read."""
        return 0 if self.sequential(epoch) else len(self.table(epoch))

    def count(self, epoch: int) -> int:
        """Pools in an epoch."""
        return -(-len(self.table(epoch)) // self._size(epoch))

    def passed(self, pool: Pool, batches: int, length: int | None = None) -> float:
        """Passes over the data after so many batches of a pool: only whole passes if the length of an epoch is unknown.
        `length` is that of an earlier epoch."""
        whole = pool.examples or self.length or length
        if not whole:
            return float(pool.epoch + (pool.last and batches == len(pool.cuts)))
        size = self._size(pool.epoch)
        begin = min(pool.number * size, whole)
        end = whole if pool.last else min(begin + size, whole)
        return pool.epoch + (begin + (end - begin) * batches / len(pool.cuts)) / whole

    def _size(self, epoch: int) -> int:
        if self.task is not None and not isinstance(self.task, TextTask):
            pool = self.batching.pool or self.task.pool
        else:
            pool = self.batching.pool_size(self.seq2seq and self.task is None, self.source.fixed)
        return max(1, pool // getattr(self.table(epoch), "weight", 1))

    @property
    def _shuffles(self) -> bool:
        return self.batching.shuffle and self.split == "train"

    def build(self, epoch: int, number: int) -> Pool:
        counts, random = Counts(), Random(mix(self.seed, epoch, number)) if self._shuffles else None
        if self.task is None or isinstance(self.task, TextTask):
            cuts = self._of_text(epoch, number, random, counts)
        else:
            cuts = self._of_items(self.task, epoch, number, random, counts)
        counts.tokens = sum(cut.tokens for cut in cuts)
        counts.slots = sum(cut.slots for cut in cuts)
        last = number == self.count(epoch) - 1
        length = len(self.table(epoch)) if last else None
        return Pool(epoch, number, last, self.examples(epoch), length, cuts, counts)

    def _of_text(self, epoch: int, number: int, random: Random | None, counts: Counts) -> list[NumpyBatch]:
        table = self.table(epoch)
        found = self._reader(table).read(table, self._entries(epoch, number), self._speak(epoch), counts)
        if found is None:
            return []
        sort = random is not None or not found.running  # in evaluation, a text is read as it stands
        if isinstance(self.task, TextTask):
            if not found.running or found.conversations:
                raise ValueError(f"the task {self.task.kind} is on running text, which this source does not give")
            rows = self.task.rows(found, self._words, self.batching, self._chance(epoch, number), counts)
        else:
            rows = self._rows(found, random, counts)
        return self._cuts(rows, random, sort)

    def _of_items(self, task: Task, epoch: int, number: int, random: Random | None, counts: Counts) -> list[NumpyBatch]:
        """Batches of a task's items, bucketed by length."""
        examples = read(self.table(epoch), self._entries(epoch, number).tolist(), counts)
        items: list[Item] = []
        for made in task.items(examples, self.tokenizer, self._chance(epoch, number)):
            if isinstance(made, Skipped):
                counts.skip(made)
            else:
                items.append(made)
                counts.cut += made.cut
        if not items:
            return []
        own, source = np.array([item.lengths for item in items], np.int64).T
        chosen = bucketed_order(own, source)
        edges = batch_edges(own[chosen], source[chosen], self.batching.tokens, self.batching.max_rows)
        pad = 0 if self.tokenizer is None else self.tokenizer.pad_id or 0
        cuts = [task.collate([items[i] for i in chosen[a:b]], pad) for a, b in pairwise(edges)]
        if random is not None:
            random.shuffle(cuts)
        return cuts

    def _chance(self, epoch: int, number: int) -> RandomContext:
        training = self.split == "train"
        return RandomContext(np.random.default_rng(mix(self.seed, epoch, number) if training else number), training)

    @property
    def _words(self) -> Encoder:
        if self.tokenizer is None:
            raise ValueError(f"the {self.source.kind} source gives texts, and reading them needs a tokenizer")
        return self.tokenizer

    # -- examples -----------------------------------------------------------------------------------------------

    def _entries(self, epoch: int, number: int) -> Index:
        """The table indices of a pool. With `rows: stream`, pools are shuffled, but not the entries in them."""
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
            self._memory = TokenCache(len(table), budget)
        reach = CharacterLimit(longest * _CHARACTERS_A_TOKEN, batching.over_long == "skip")
        return Reader(reach, not training, self._memory, self.stopped.is_set, self.tokenizer)

    @property
    def _dropout(self) -> bool:
        """Whether training texts are tokenized with subword sampling."""
        sides = () if self.tokenizer is None else source_and_target_tokenizer(self.tokenizer)
        return self.split == "train" and any((getattr(side, "dropout", 0) or 0) > 0 for side in sides)

    def _speak(self, epoch: int) -> EncodeTexts:
        return encode_function(self._words, mix(self.seed, epoch) if self._dropout else None)

    # -- rows and batches ---------------------------------------------------------------------------------------

    def _rows(self, found: Encoded, random: Random | None, counts: Counts) -> Rows:
        batching, tokenizer = self.batching, self._words
        if self.seq2seq and (found.running or found.conversations):
            what = "conversations" if found.conversations else "running text"
            raise ValueError(
                f"the {self.source.kind or type(self.source).__name__} source gives {what}; an encoder-decoder needs "
                "pairs of source and target"
            )
        if self.seq2seq:
            rows = row_kinds.pair_rows(found, tokenizer, Limits(batching.max_length, batching.over_long), counts)
            return packing.packed_pairs(rows, batching.context) if batching.packing else rows
        if not found.running:
            limits = Limits(batching.context, batching.over_long)
            if found.conversations:
                rows = row_kinds.conversation_rows(found, limits, counts)
            else:
                rows = row_kinds.prompt_rows(found, tokenizer, limits, counts)
            return packing.packed(rows, batching.context) if batching.packing else rows
        if batching.packing:
            return packing.packed_rows(found, tokenizer, batching.context)
        if batching.rows == "stream":
            return row_kinds.window_rows(found, tokenizer, batching.context, random)
        return row_kinds.running_rows(found, tokenizer, batching.context, random)

    def _cuts(self, rows: Rows, random: Random | None, sort: bool) -> list[NumpyBatch]:
        """Batches of rows of similar length, in random order."""
        if random is not None:
            rows = rows.take(Shuffle(len(rows), random.getrandbits(63))(np.arange(len(rows))))
        if sort:
            rows = rows.take(bucketed_order(rows.inputs.lengths, rows.source_lengths))
        edges = batch_edges(rows.inputs.lengths, rows.source_lengths, self.batching.tokens, self.batching.max_rows)
        pad = self._words.pad_id or 0  # which id stands in the padding makes no difference: layouts say what is real
        cuts = [_collate(rows.take(np.arange(a, b)), pad) for a, b in pairwise(edges)]
        if random is not None:
            random.shuffle(cuts)
        return cuts


def _collate(rows: Rows, pad: int) -> NumpyBatch:
    own, labels = rows.inputs.padded(pad), rows.labels.padded(IGNORE)
    spans = PaddedLayout(
        rows.inputs.lengths.tolist(), rows.documents, None if rows.roles is None else rows.roles.padded(0)
    )
    tokens, slots = sum(spans.lengths), own.size
    if rows.source is None:
        arrays, placed = {"ids": own}, {"ids": spans}
    else:
        arrays = {"ids": rows.source.padded(pad), "target": own}
        placed = {"ids": PaddedLayout(rows.source.lengths.tolist(), rows.source_documents), "target": spans}
        tokens, slots = tokens + sum(placed["ids"].lengths), slots + arrays["ids"].size
    if rows.token_types is not None:
        arrays["token_types"] = rows.token_types.padded(0)
    counts = {"loss": count_labels(labels)} | {name: count_labels(target) for name, target in rows.targets.items()}
    return NumpyBatch(arrays, dict(placed), labels, dict(rows.targets), counts, tokens, slots, rows.examples)
