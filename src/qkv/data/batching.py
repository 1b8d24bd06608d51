"""From a source to batches: examples are read pool by pool, sorted by length within a pool and cut by a token budget.

A pool is a pure function of (source, seed, epoch, number). That makes resuming exact, and worker processes a matter of
speed alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import Field

from ..core.batch import Batch
from ..core.spec import Spec
from .pools import Pools
from .rows import Encoder
from .sources import Counts, Source, Split
from .workers import ordered


class Batching(Spec):
    """How examples become batches.

    tokens:     slots of a batch, padding and both sides of a pair counted: rows × longest, summed over the sides.
    max_rows:   rows of a batch at most.
    pool:       examples (lines; a piece of a large file counts for 64) among which lengths are sorted.
    max_length: longest side of a pair in tokens, its end included. A longer one is skipped or cut, and counted.
    context:    width of the rows that text is cut or packed into; longest prompt with its answer.
    over_long:  what becomes of a pair that is too long.
    packing:    isolate documents, several to a row; otherwise text runs on from document to document.
    shuffle:    draw training examples in another order each epoch.
    workers:    processes that build pools ahead; the batches are the same for any number.
    """

    tokens: int = Field(default=4096, ge=1)
    max_rows: int | None = Field(default=None, ge=1)
    pool: int = Field(default=8192, ge=1)
    max_length: int = Field(default=256, ge=2)
    context: int = Field(default=256, ge=1)
    over_long: Literal["skip", "cut"] = "skip"
    packing: bool = False
    shuffle: bool = True
    workers: int = Field(default=0, ge=0)

    def check(self, seq2seq: bool) -> None:
        """Raise ValueError when the longest allowed row alone would break the token budget."""
        need, what = (2 * self.max_length, "a pair with max_length") if seq2seq else (self.context, "a row of context")
        if need > self.tokens:
            size = self.max_length if seq2seq else self.context
            raise ValueError(
                f"batches of {self.tokens} tokens can't hold {what} {size} ({need} slots); raise tokens or "
                f"lower {'max_length' if seq2seq else 'context'}"
            )


def stream(
    source: Source,
    tokenizer: Encoder,
    batching: Batching,
    *,
    seq2seq: bool,
    split: Split = "train",
    seed: int = 0,
    position: dict[str, Any] | None = None,
    epochs: int | None = None,
) -> Stream:
    """Batches of one split, right padded. Training is endless unless `epochs` is given; other splits last one pass.

    `position` of any batch resumes with the batch after it, bit for bit. Raises ValueError when the data are missing or
    broken, when no example is left after filtering, and when a position is of data of another size.
    """
    batching.check(seq2seq)
    last = epochs if epochs is not None or split == "train" else 1
    return Stream(Pools(source, tokenizer, batching, seq2seq, split, seed), position or {}, last)


class Stream(Iterator[Batch]):
    """An iterator of batches; `report` says what was read, skipped and cut so far. Close it to end its workers."""

    def __init__(self, pools: Pools, position: dict[str, Any], epochs: int | None) -> None:
        self.report = Counts(notes=pools.source.notes())
        self._pools, self._epochs = pools, epochs
        self._start = tuple(int(position.get(name, 0)) for name in ("epoch", "pool", "batch"))
        self._check(position)
        self._batches: Generator[Batch, None, None] = self._run()

    def __next__(self) -> Batch:
        return next(self._batches)

    def close(self) -> None:
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check(self, position: dict[str, Any]) -> None:
        now = len(self._pools.table(self._start[0]))
        if "examples" in position and position["examples"] != now:
            raise ValueError(
                f"can't resume: the data held {position['examples']:,} examples when this position was saved and hold "
                f"{now:,} now"
            )

    def _tasks(self) -> Iterator[tuple[int, int]]:
        epoch, pool, _ = self._start
        while self._epochs is None or epoch < self._epochs:
            count = self._pools.count(epoch)
            if count == 0:
                raise ValueError(f"the {self._pools.split} split holds no example")
            for number in range(pool, count):
                yield epoch, number
            epoch, pool = epoch + 1, 0

    def _run(self) -> Generator[Batch, None, None]:
        skip = self._start[2]
        fruitless = self._start[1:] == (0, 0)  # no batch in this epoch so far
        for pool in ordered(self._pools.build, self._tasks(), self._pools.batching.workers):
            self.report.add(pool.counts)
            for i, cut in enumerate(pool.cuts[skip:], skip):
                yield cut.batch({"epoch": pool.epoch, "pool": pool.number, "batch": i + 1, "examples": pool.examples})
            fruitless, skip = fruitless and not pool.cuts, 0
            if pool.last:
                if fruitless:
                    raise ValueError(f"no example of the {self._pools.split} split is left to use: {self.report}")
                fruitless = True
