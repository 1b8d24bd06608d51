"""Pools of examples, as in torchtext's BucketIterator: tokenized, bucketed by length, and cut into NumPy batches."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from ...core.batch import IGNORE
from ..batching import packing
from ..batching.bucketing import batch_edges, bucketed_order
from ..batching.encoded import Encoded
from ..batching.encoding import CharacterLimit, EncodeTexts, Reader, encode_function, source_and_target_tokenizer
from ..batching.numpy_batch import NumpyBatch, PaddedLayout, count_labels
from ..batching.ragged import Index
from ..batching.rows import Limits, Rows, conversation_rows, pair_rows, prompt_rows, running_rows, window_rows
from ..batching.settings import Batching
from ..batching.sharding import WHOLE, Shard, Share, share_of
from ..batching.token_cache import TokenCache
from ..shuffle import Shuffle, mix
from ..source import Counts, Skipped, Source, Split, Table, order, read
from ..tables import StreamTable
from ..task import Item, RandomContext, Task, TextTask
from ..tokenizers.protocol import Encoder
from .item_cache import ItemCache, repeats

_CHARACTERS_A_TOKEN = 64  # more than the average of any text: a longer text is over-long, and is not tokenized


@dataclass(frozen=True)
class Pool:
    """The batches of one pool, in the order of training."""

    epoch: int
    number: int
    last: bool  # of its epoch
    examples: int  # entries in the epoch's table; 0 if its length is unknown until it is read
    length: int | None  # the same in the last pool of an epoch, which always knows it
    cuts: list[NumpyBatch]
    counts: Counts
    place: dict[str, Any] | None = None  # of its first entry in a stream, see `StreamTable.place`


@dataclass
class Pools:
    """Builds pools: `build(epoch, number)` always returns the same one, in any process.

    With a `shard`, each batch has the rows of one rank; the batches of all ranks together equal `WHOLE`'s.
    `stopped` cancels a build that runs in another thread.
    """

    source: Source
    tokenizer: Encoder | None
    batching: Batching
    seq2seq: bool
    split: Split
    seed: int
    task: Task | None = None
    length: int | None = None  # entries in an epoch of a sequential table, if they were counted
    shard: Shard = WHOLE
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._opened: dict[int, Table] = {}
        self._opening = threading.Lock()
        self._memory: TokenCache | None = None
        self._items: ItemCache | None = None

    def __reduce__(self) -> tuple[Any, ...]:  # an open table holds memory maps, which don't pickle
        return Pools, tuple(getattr(self, field.name) for field in fields(self) if field.name != "stopped")

    def table(self, epoch: int) -> Table:
        with self._opening:
            if epoch not in self._opened:
                self._opened = {e: table for e, table in self._opened.items() if e == epoch - 1}
                self._opened[epoch] = self.source.table(self.split, seed=self.seed, epoch=epoch)
            return self._opened[epoch]

    def go_to(self, epoch: int, place: dict[str, Any] | None) -> None:
        """Go to the place of a pool in a stream, so what is before it isn't read again."""
        table = self.table(epoch)
        if place is not None and isinstance(table, StreamTable):
            table.go_to(place)

    def sequential(self, epoch: int) -> bool:
        """Whether the examples can only be read in order."""
        return getattr(self.table(epoch), "sequential", False)

    def examples(self, epoch: int) -> int:
        """Entries in an epoch's table; 0 if its length is unknown until it is read."""
        return 0 if self.sequential(epoch) else len(self.table(epoch))

    def count(self, epoch: int) -> int:
        """Pools in an epoch."""
        return -(-len(self.table(epoch)) // self._size(epoch))

    def passed(self, pool: Pool, batches: int, length: int | None = None) -> float:
        """Passes over the data after `batches` batches of a pool: only full passes if the length of an epoch is unknown.
        `length` is that of an earlier epoch."""
        total = pool.examples or self.length or length
        if not total:
            return float(pool.epoch + (pool.last and batches == len(pool.cuts)))
        size = self._size(pool.epoch)
        begin = min(pool.number * size, total)
        end = total if pool.last else min(begin + size, total)
        return pool.epoch + (begin + (end - begin) * batches / len(pool.cuts)) / total

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
        table = self.table(epoch)
        place = table.place() if isinstance(table, StreamTable) else None
        if self.task is None or isinstance(self.task, TextTask):
            cuts = self._of_text(epoch, number, random, counts)
        else:
            cuts = self._of_items(self.task, epoch, number, random, counts)
        counts.tokens = sum(cut.tokens for cut in cuts)
        counts.slots = sum(cut.slots for cut in cuts)
        last = number == self.count(epoch) - 1
        length = len(table) if last else None
        return Pool(epoch, number, last, self.examples(epoch), length, cuts, counts, place)

    def _of_text(self, epoch: int, number: int, random: Random | None, counts: Counts) -> list[NumpyBatch]:
        table = self.table(epoch)
        encoded = self._reader(table).read(table, self._entries(epoch, number), self._encode(epoch), counts)
        if encoded is None:
            return []
        sort = random is not None or not encoded.running  # in evaluation, running text stays in order
        if isinstance(self.task, TextTask):
            if not encoded.running or encoded.conversations:
                raise ValueError(f"the task {self.task.kind} needs running text, which this source does not have")
            rows = self.task.rows(encoded, self._encoder, self.batching, self._randomness(epoch, number), counts)
        else:
            rows = self._rows(encoded, random, counts)
        return self._cuts(rows, random, sort)

    def _of_items(self, task: Task, epoch: int, number: int, random: Random | None, counts: Counts) -> list[NumpyBatch]:
        """Batches of a task's items, bucketed by length."""
        items: list[Item] = []
        for item in self._items_of(task, epoch, number, counts):
            if isinstance(item, Skipped):
                counts.skip(item)
            else:
                items.append(item)
                counts.cut += item.cut
        if not items:
            return []
        own, source = np.array([item.lengths for item in items], np.int64).T
        chosen = bucketed_order(own, source)
        edges = batch_edges(own[chosen], source[chosen], self.batching.tokens, self.batching.max_rows)
        pad = 0 if self.tokenizer is None else self.tokenizer.pad_id or 0
        cuts = []
        for a, b in pairwise(edges):
            which = chosen[a:b]
            share = share_of(self.shard, own[which], source[which])
            cuts.append(_own(share, task.collate([items[i] for i in which[share.start : share.stop]], pad)))
        if random is not None:
            random.shuffle(cuts)
        return cuts

    def _items_of(self, task: Task, epoch: int, number: int, counts: Counts) -> list[Item | Skipped]:
        """Return the items of a pool, from the cache if they are the same in every epoch."""
        table, entries = self.table(epoch), self._entries(epoch, number).tolist()
        randomness = self._randomness(epoch, number)
        if self._caches and not self.sequential(epoch) and repeats(task, self.tokenizer):
            self._items = self._items or ItemCache(self._budget)
            return self._items.items(
                table, entries, lambda examples: task.items_of_each(examples, self.tokenizer, randomness), counts
            )
        return task.items(read(table, entries, counts), self.tokenizer, randomness)

    def _randomness(self, epoch: int, number: int) -> RandomContext:
        training = self.split == "train"
        return RandomContext(np.random.default_rng(mix(self.seed, epoch, number) if training else number), training)

    @property
    def _encoder(self) -> Encoder:
        if self.tokenizer is None:
            raise ValueError(f"the {self.source.kind} source gives texts, which need a tokenizer")
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
        if self._caches and not self._dropout and self._memory is None:
            self._memory = TokenCache(len(table), self._budget)
        reach = CharacterLimit(longest * _CHARACTERS_A_TOKEN, batching.over_long == "skip")
        return Reader(reach, not training, self._memory, self.stopped.is_set, self.tokenizer)

    @property
    def _budget(self) -> int:
        """The size limit of the cache in each process, in bytes."""
        return (self.batching.cache << 20) // max(1, self.batching.processes)

    @property
    def _caches(self) -> bool:
        """Whether every epoch has the same examples, and the cache is not disabled."""
        return self.split == "train" and self.source.fixed and self._budget > 0

    @property
    def _dropout(self) -> bool:
        """Whether training texts are tokenized with subword sampling."""
        sides = () if self.tokenizer is None else source_and_target_tokenizer(self.tokenizer)
        return self.split == "train" and any((getattr(side, "dropout", 0) or 0) > 0 for side in sides)

    def _encode(self, epoch: int) -> EncodeTexts:
        return encode_function(self._encoder, mix(self.seed, epoch) if self._dropout else None)

    # -- rows and batches ---------------------------------------------------------------------------------------

    def _rows(self, encoded: Encoded, random: Random | None, counts: Counts) -> Rows:
        batching, tokenizer = self.batching, self._encoder
        if self.seq2seq and (encoded.running or encoded.conversations):
            what = "conversations" if encoded.conversations else "running text"
            raise ValueError(
                f"the {self.source.kind or type(self.source).__name__} source gives {what}; an encoder-decoder needs "
                "pairs of source and target"
            )
        if self.seq2seq:
            rows = pair_rows(encoded, tokenizer, Limits(batching.max_length, batching.over_long), counts)
            return packing.packed_pairs(rows, batching.context) if batching.packing else rows
        if not encoded.running:
            limits = Limits(batching.context, batching.over_long)
            if encoded.conversations:
                rows = conversation_rows(encoded, limits, counts)
            else:
                rows = prompt_rows(encoded, tokenizer, limits, counts)
            return packing.packed(rows, batching.context) if batching.packing else rows
        if batching.packing:
            return packing.packed_rows(encoded, tokenizer, batching.context)
        if batching.rows == "stream":
            return window_rows(encoded, tokenizer, batching.context, random)
        return running_rows(encoded, tokenizer, batching.context, random)

    def _cuts(self, rows: Rows, random: Random | None, sort: bool) -> list[NumpyBatch]:
        """Batches of rows of similar length, in random order."""
        if random is not None:
            rows = rows.take(Shuffle(len(rows), random.getrandbits(63))(np.arange(len(rows))))
        if sort:
            rows = rows.take(bucketed_order(rows.inputs.lengths, rows.source_lengths))
        edges = batch_edges(rows.inputs.lengths, rows.source_lengths, self.batching.tokens, self.batching.max_rows)
        pad = self._encoder.pad_id or 0  # any id: layouts mark the padding
        cuts = []
        for a, b in pairwise(edges):
            share = share_of(self.shard, rows.inputs.lengths[a:b], rows.source_lengths[a:b])
            cut = _own(share, _collate(rows.take(np.arange(a + share.start, a + share.stop)), pad))
            if rows.documents:
                cut = replace(cut, first_row=sum(map(len, rows.documents[a : a + share.start])))
            cuts.append(cut)
        if random is not None:
            random.shuffle(cuts)
        return cuts


def _own(share: Share, cut: NumpyBatch) -> NumpyBatch:
    """The batch of a rank; one that is idle counts nothing. An item may have several rows, such as a pair of texts."""
    each = -(-len(next(iter(cut.arrays.values()))) // max(share.stop - share.start, 1))
    cut = replace(cut, first_row=share.start * each)
    if not share.idle:
        return cut
    return replace(cut, counts=dict.fromkeys(cut.counts, 0), tokens=0, slots=0, texts=(), idle=True)


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
