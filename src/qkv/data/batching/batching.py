"""From a source to batches: examples are read pool by pool, sorted by length within a pool and cut by a token budget.

A pool is a pure function of (source, seed, epoch, number). That makes resuming exact, and worker processes a matter of
speed alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from ...core.batch import Batch
from ...core.spec import Spec, brief
from ..source import Counts, Source, Split
from ..task import Task, TextTask
from .encoding import Encoder
from .numpy_batch import Cut
from .pools import Pool, Pools
from .rows import OVER_LONG
from .workers import ahead, by_processes


class Batching(Spec):
    """How examples become batches.

    tokens:     slots of a batch, padding and both sides of a pair counted: rows × longest, summed over the sides.
    max_rows:   rows of a batch at most.
    pool:       examples (lines; a piece of a large file counts for 64) among which lengths are sorted. By default enough
                pairs from files for some 250 batches (8 for each of `tokens`, 131,072 at most), and 8,192 of all else.
    max_length: longest side of a pair in tokens, its end included. A longer one is skipped or cut, and counted.
    context:    width of the rows that text is cut or anything is packed into; longest prompt with its answer.
    over_long:  what becomes of a pair that is too long.
    packing:    isolate documents or pairs, several to a row; otherwise text runs on from document to document.
    rows:       of text that is not packed: "documents" are drawn in any order, and no label crosses from one to the
                next; a "stream" is all text in its order, cut into windows in which every label is the next token.
    shuffle:    draw training examples (of a stream: windows) in another order each epoch.
    workers:    how pools are built ahead; the batches are the same. "auto" for a thread, which waits for the tokenizer
                and the disk while this one trains; a number for so many processes; 0 for neither.
    cache:      MiB of memory in which the ids of training examples are kept, so that files are tokenized once.
    """

    tokens: int = Field(default=4096, ge=1)
    max_rows: int | None = Field(default=None, ge=1)
    pool: int | None = Field(default=None, ge=1)
    max_length: int = Field(default=256, ge=2)
    context: int = Field(default=256, ge=1)
    over_long: Literal["skip", "cut"] = "skip"
    packing: bool = False
    rows: Literal["documents", "stream"] = "documents"
    shuffle: bool = True
    workers: int | Literal["auto"] = "auto"
    cache: int = Field(default=256, ge=0)

    @field_validator("workers", mode="before")
    @classmethod
    def _number_or_auto(cls, value: Any) -> Any:
        if value != "auto" and not (isinstance(value, int) and value >= 0):
            raise ValueError(f"workers is a number of processes from 0, or 'auto', not {brief(value)}")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.packing and self.rows == "stream":
            raise ValueError("packing isolates documents, a stream runs on through them: leave out packing or rows")
        return self

    @property
    def processes(self) -> int:
        return 0 if self.workers == "auto" else self.workers

    def pool_size(self, pairs: bool, fixed: bool) -> int:
        """Examples in a pool; `fixed` ones are the same in each epoch and so cost little to sort in large pools."""
        if self.pool is not None:
            return self.pool
        return max(_POOL, min(8 * self.tokens, _LARGEST_POOL)) if pairs and fixed and not self.packing else _POOL

    def check(self, seq2seq: bool) -> None:
        """Raise ValueError when the longest allowed row alone would break the token budget."""
        name: Literal["max_length", "context"] = "max_length" if seq2seq and not self.packing else "context"
        size, sides = getattr(self, name), 2 if seq2seq else 1
        what = "a pair with max_length" if name == "max_length" else "a row of context"
        if sides * size > self.tokens:
            raise ValueError(
                f"batches of {self.tokens} tokens can't hold {what} {size} ({sides * size} slots); raise tokens or "
                f"lower {name}"
            )
        if seq2seq and self.packing and self.max_length > self.context:
            raise ValueError(
                f"a pair with max_length {self.max_length} doesn't fit the rows of context {self.context} that pairs are "
                "packed into; raise context or lower max_length"
            )


_POOL, _LARGEST_POOL = 8192, 131_072


def stream(
    source: Source,
    tokenizer: Encoder | None,
    batching: Batching,
    *,
    seq2seq: bool,
    task: Task | None = None,
    split: Split = "train",
    seed: int = 0,
    position: dict[str, Any] | None = None,
    epochs: int | None = None,
    length: int | None = None,
) -> Stream:
    """Batches of one split, right padded, as a `task` makes them; without one, of texts and pairs as they are.

    Training is endless unless `epochs` is given; other splits last one pass.

    `position["passed"]` of a batch is how many passes over the data are done after it, in whole ones where the source
    doesn't know before its end how many entries it has. `length` says it then (see `count`); without it, the first pass
    does, and `position["length"]` keeps it.

    `position` of any batch resumes with the batch after it, bit for bit. Raises ValueError when the data are missing or
    broken, when no example is left after filtering, and when a position is of data of another size.
    """
    if task is None or isinstance(task, TextTask):
        batching.check(seq2seq and task is None)
    last = epochs if epochs is not None or split == "train" else 1
    return Stream(Pools(source, tokenizer, batching, seq2seq, split, seed, task, length), position or {}, last)


class Stream(Iterator[Batch]):
    """An iterator of batches; `report` says what was read, skipped and cut so far. Close it to end its workers."""

    def __init__(self, pools: Pools, position: dict[str, Any], epochs: int | None) -> None:
        self.report = Counts(notes=pools.source.notes())
        start = _Place(*(int(position.get(name, 0)) for name in _Place._fields))
        now = pools.examples(start.epoch)
        if "examples" in position and position["examples"] != now:
            raise ValueError(
                f"can't resume: the data held {position['examples']:,} examples when this position was saved and hold "
                f"{now:,} now"
            )
        # A generator that knew this object would be freed by the garbage collector, whenever and in whichever thread.
        self._batches = _batches(pools, start, epochs, self.report, position.get("length"))

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Place(NamedTuple):
    """Where a stream begins."""

    epoch: int
    pool: int
    batch: int


def _batches(
    pools: Pools, start: _Place, epochs: int | None, report: Counts, length: int | None
) -> Generator[Batch, None, None]:
    skip = start.batch
    fruitless = start[1:] == (0, 0)  # no batch in this epoch so far
    with contextlib.closing(_built(pools, start, epochs)) as built:
        for pool in built:
            report.add(pool.counts)
            if pool.number == 0 and pool.last and len(pool.cuts) == 1 and pools.split == "train":
                report.notes = tuple(dict.fromkeys([*report.notes, _little(pools.batching, pool.cuts[0])]))
            for i, cut in enumerate(pool.cuts[skip:], skip):
                at: dict[str, Any] = {
                    "epoch": pool.epoch,
                    "pool": pool.number,
                    "batch": i + 1,
                    "examples": pool.examples,
                }
                at["passed"] = pools.passed(pool, i + 1, length)
                if length:
                    at["length"] = length
                yield cut.batch(at)
            fruitless, skip = fruitless and not pool.cuts, 0
            length = length if pool.examples else pool.length or length
            if pool.last and fruitless:
                raise ValueError(_nothing_left(pools, report))
            fruitless = fruitless or pool.last


def _tasks(pools: Pools, start: _Place, epochs: int | None) -> Iterator[tuple[int, int]]:
    """(epoch, number) of each pool."""
    epoch, number, _ = start
    while epochs is None or epoch < epochs:
        if pools.count(epoch) == 0:
            raise ValueError(f"the {pools.split} split holds no example")
        while number < pools.count(epoch):  # which a table that is read in order knows at its end
            yield epoch, number
            number += 1
        epoch, number = epoch + 1, 0


def _built(pools: Pools, start: _Place, epochs: int | None) -> Generator[Pool, None, None]:
    """The pools that follow one another, built ahead where that is asked for."""
    tasks, workers = _tasks(pools, start, epochs), pools.batching.workers
    if pools.split == "train" and (workers == "auto" or (workers and pools.sequential(start.epoch))):
        return ahead(pools.build, tasks, pools.stopped.set)
    if workers and workers != "auto":
        return by_processes(pools.build, tasks, workers)
    return (pools.build(*task) for task in tasks)


def count(source: Source, seed: int = 0) -> int:
    """How many entries an epoch of the training data has; those that are read in order are read to their end."""
    table, n = source.table("train", seed=seed), 0
    while getattr(table, "sequential", False) and table[n] is not None:
        n += 1
    return n or len(table)


def _little(batching: Batching, cut: Cut) -> str:
    return (
        f"all training data make one batch ({cut.slots:,} of {batching.tokens:,} slots), so every step sees the same; "
        "lower tokens for smaller steps"
    )


def _nothing_left(pools: Pools, report: Counts) -> str:
    said = f"no example of the {pools.split} split is left to use: {replace(report, notes=())}"
    if not report.skipped[OVER_LONG]:
        return said
    limit = "max_length" if pools.seq2seq else "context"
    return f"{said}; raise {limit}, which is {getattr(pools.batching, limit)}, or set over_long to cut"
