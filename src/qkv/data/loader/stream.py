"""Data loader: a resumable stream of batches from a source, built pool by pool, in worker threads or processes.

A pool is a pure function of (source, seed, epoch, number). Resuming is therefore exact, and workers change only the
speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from ...core.batch import Batch
from ...core.several import checked, whole_numbers
from ..batching.numpy_batch import NumpyBatch
from ..batching.rows import OVER_LONG
from ..batching.settings import Batching
from ..batching.sharding import WHOLE, Shard
from ..source import Counts, Source, Split
from ..task import Task, TextTask
from ..tokenizers.protocol import Encoder
from .pools import Pool, Pools
from .workers import build_in_processes, build_in_thread


@checked
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
    shard: Shard = WHOLE,
) -> Stream:
    """Batches of one split, right padded, built by a `task`; without one, of texts and pairs as they are.

    Training is endless unless `epochs` is given; other splits last one pass.

    `position["passed"]` of a batch is the number of passes over the data after it: full passes only, if the source does
    not know its length before its end. Then `length` provides it (see `count`); without it, the first pass does, and
    `position["length"]` stores it.

    With a `shard`, each batch has the rows of one rank: all ranks read the same examples in the same order and make the
    same batches, of which each keeps its own rows. A rank without rows gets an `idle` batch.

    Passing the `position` of any batch resumes with the batch after it, bit for bit. Raises ValueError if the data are
    missing or broken, if no example is left after filtering, or if the data had another size at that position.
    """
    whole_numbers(0, epochs=epochs, length=length)
    if task is None or isinstance(task, TextTask):
        batching.check(seq2seq and task is None)
    last = epochs if epochs is not None or split == "train" else 1
    return Stream(Pools(source, tokenizer, batching, seq2seq, split, seed, task, length, shard), position or {}, last)


class Stream(Iterator[Batch]):
    """An iterator of batches; `report` counts what was read, skipped and cut so far. Close it to stop its workers."""

    def __init__(self, pools: Pools, position: dict[str, Any], epochs: int | None) -> None:
        self.report = Counts(notes=pools.source.notes())
        start = _Place(*(int(position.get(name, 0)) for name in _Place._fields))
        now = pools.examples(start.epoch)
        if "examples" in position and position["examples"] != now:
            raise ValueError(
                f"can't resume: the data held {position['examples']:,} examples when this position was saved and hold "
                f"{now:,} now"
            )
        pools.go_to(start.epoch, position.get("place"))
        # A generator with a reference to this object would be freed by the garbage collector, at any time, in any thread.
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
    """The position at which a stream begins."""

    epoch: int
    pool: int
    batch: int


def _batches(
    pools: Pools, start: _Place, epochs: int | None, report: Counts, length: int | None
) -> Generator[Batch, None, None]:
    skip, epoch_counts, number = start.batch, Counts(), start.epoch
    fruitless = start[1:] == (0, 0)  # no batch in this epoch so far
    with contextlib.closing(_built(pools, start, epochs)) as built_pools:
        for pool in built_pools:
            if pool.epoch != number:
                epoch_counts, number = Counts(), pool.epoch
            epoch_counts.add(pool.counts)
            report.update_epoch(epoch_counts, pool.counts)
            if pool.number == 0 and pool.last and len(pool.cuts) == 1 and pools.split == "train":
                report.notes = tuple(dict.fromkeys([*report.notes, _one_batch_note(pools.batching, pool.cuts[0])]))
            for i, cut in enumerate(pool.cuts[skip:], skip):
                at: dict[str, Any] = {"epoch": pool.epoch, "pool": pool.number, "batch": i + 1}
                at |= {"examples": pool.examples, "passed": pools.passed(pool, i + 1, length)}
                if length:
                    at["length"] = length
                if pool.place is not None:
                    at["place"] = pool.place
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
        while number < pools.count(epoch):  # a sequential table knows this only at its end
            yield epoch, number
            number += 1
        epoch, number = epoch + 1, 0


def _built(pools: Pools, start: _Place, epochs: int | None) -> Generator[Pool, None, None]:
    """The pools in order, built ahead by a thread or processes if the settings say so."""
    tasks, workers = _tasks(pools, start, epochs), pools.batching.workers
    if pools.split == "train" and (workers == "auto" or (workers and pools.sequential(start.epoch))):
        return build_in_thread(pools.build, tasks, pools.stopped.set)
    if workers and workers != "auto":
        return build_in_processes(pools.build, tasks, workers)
    return (pools.build(*task) for task in tasks)


def count(source: Source, seed: int = 0) -> int:
    """The number of entries in an epoch of the training data; a sequential table is read to its end."""
    table, n = source.table("train", seed=seed), 0
    while getattr(table, "sequential", False) and table[n] is not None:
        n += 1
    return n or len(table)


def _one_batch_note(batching: Batching, cut: NumpyBatch) -> str:
    return (
        f"all training data make one batch ({cut.slots:,} of {batching.tokens:,} slots), so every step sees the same; "
        "lower tokens for smaller steps"
    )


def _nothing_left(pools: Pools, report: Counts) -> str:
    message = f"no example of the {pools.split} split is left to use: {replace(report, notes=())}"
    if not report.skipped[OVER_LONG]:
        return message
    limit = "max_length" if pools.seq2seq else "context"
    return f"{message}; raise {limit}, which is {getattr(pools.batching, limit)}, or set over_long to cut"
