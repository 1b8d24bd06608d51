"""The base of tasks on whole texts: special tokens, truncation, one or several rows an example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field

from ..core.batch import Batch
from ..data.batching.numpy_batch import Array, NumpyBatch, PaddedLayout
from ..data.batching.rows import OVER_LONG
from ..data.source import Example, OnError, Skipped, Source
from ..data.task import Item, RandomContext, Task, format_value, joined
from ..layers.embedding import Input
from ..tokenizers.protocol import Encoder
from .framing import Framed, framed

TEXTS = ("text", "pair")
_AT_ONCE = 1000  # texts given to the tokenizer in one call


@dataclass(frozen=True, eq=False)
class Framings(Item):
    """An example with the rows that its texts become."""

    rows: tuple[Framed, ...] = ()

    @property
    def cut(self) -> bool:
        """Whether there was no room for all of a text."""
        return any(row.cut for row in self.rows)

    @property
    def lengths(self) -> tuple[int, int]:
        """The slots of its rows, padded to the longest, so that no batch is larger than it may be."""
        return len(self.rows) * max(len(row.ids) for row in self.rows), 0


class Sentences(Task):
    """longest: tokens of a row at most, special ones counted.
    over_long:  texts with more are cut at their ends, the longer of two first, or the example is skipped; both are counted.
    on_error:   for an example whose label is of another kind than the task's, out of range, or a class that is not in the
                training data: "raise" an error that says where it is, or "skip" and count it.
    segments:   how many kinds of token types the model tells apart; by default as many as it does.
    global_tokens: which token of a row sees all others and is seen by them, where the model has such tokens: the `first`, by
                which classes are told, and which is taken where nothing is said (Longformer, Beltagy et al. 2020, §3); or
                `none`.
    """

    renamed: ClassVar[dict[str, str]] = {"strange": "on_error"}

    longest: int = Field(default=128, ge=4)
    over_long: Literal["cut", "skip"] = "cut"
    on_error: OnError = "raise"
    segments: int | None = Field(default=None, ge=0)
    global_tokens: Literal["first", "none"] | None = None

    def with_global_tokens(self) -> Self:
        return self if self.global_tokens else self.replace(global_tokens="first")

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        """Raises ValueError where the data have no labels, or none that tell anything apart."""
        return self._filled(inputs)

    def texts(self, example: Example) -> Iterator[str]:
        yield from (text for row in self.sides(example) for text in row)

    # -- what a task says -----------------------------------------------------------------------------------------

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        """The rows of an example, each a text or two that are read together. By default one."""
        return [tuple(example[name] for name in TEXTS if name in example)]

    # -- batches --------------------------------------------------------------------------------------------------

    def inputs_of(
        self, examples: Sequence[Example], tokenizer: Encoder | None, randomness: RandomContext
    ) -> list[Sequence[Item] | Skipped]:
        assert tokenizer is not None
        sides = [self.sides(example) for example in examples]
        ids = self._ids([text for rows in sides for row in rows for text in row], tokenizer, randomness)
        return [
            self._inputs(example, [tuple(islice(ids, len(row))) for row in rows], tokenizer)
            for example, rows in zip(examples, sides, strict=True)
        ]

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """The rows of all examples one after the other. `rows` of the targets says which are whose, (B, K), −1 for none."""
        owned = [cast(Framings, item).rows for item in items]
        rows = [row for some in owned for row in some]
        arrays = {"ids": joined([row.ids for row in rows], "ids", pad)}
        if (self.segments or 0) > 1:
            arrays["token_types"] = joined([row.token_types for row in rows], "token_types", 0)
        first = (1,) * len(rows) if self.global_tokens == "first" else ()
        spans = PaddedLayout([len(row.ids) for row in rows], global_tokens=first)
        labels = None if items[0].labels is None else np.stack([np.asarray(item.labels) for item in items])
        return NumpyBatch(
            arrays,
            {"ids": spans},
            labels,
            {"rows": _numbers([len(some) for some in owned])},
            counts={"loss": len(items)},
            tokens=sum(spans.lengths),
            slots=arrays["ids"].size,
            texts=tuple(item.example for item in items),
        )

    def preview(self, batch: Batch, row: int, tokenizer: Any) -> list[tuple[str, str]]:
        """The rows of one example, and what is to be said of it."""
        lines: list[tuple[str, str]] = []
        for at in (number for number in batch.targets["rows"][row].tolist() if number >= 0):
            real = batch.inputs["layout"].lengths[at]
            for name in ("ids", "token_types"):
                if name in batch.inputs:
                    lines.append((name, format_value(batch.inputs[name][at][:real], tokenizer, name)))
        return lines if batch.labels is None else [*lines, ("label", self.label_text(batch.labels[row].item()))]

    # -- parts ----------------------------------------------------------------------------------------------------

    def _ids(self, texts: list[str], tokenizer: Any, randomness: RandomContext) -> Iterator[Sequence[int]]:
        """Of each text in turn; split by chance where the tokenizer does that in training."""
        drawn = randomness.training and bool(getattr(tokenizer, "dropout", 0))
        for start in range(0, len(texts), _AT_ONCE):
            some = texts[start : start + _AT_ONCE]
            if drawn:
                yield from tokenizer.sample(some, randomness.generator.integers(2**62, size=len(some)).tolist())
            else:
                yield from tokenizer.encode_batch(some)

    def _inputs(
        self, example: Example, rows: list[tuple[Sequence[int], ...]], tokenizer: Encoder
    ) -> Sequence[Item] | Skipped:
        framings = tuple(framed(tokenizer, *row, room=self.longest) for row in rows)
        inputs = Framings({"ids": framings[0].ids}, example=example, rows=framings)
        return Skipped(OVER_LONG) if self.over_long == "skip" and inputs.cut else [inputs]

    def _filled(self, inputs: Input, **found: Any) -> Self:
        """With what was found in every field that is not given."""
        found["segments"] = int(getattr(inputs, "token_types", 0))
        return self.replace({name: value for name, value in found.items() if getattr(self, name) in (None, ())})

    def _refused(self, example: Example, what: str, reason: str) -> Skipped:
        """An example that the task has no use for. Raises ValueError where it must not be."""
        if self.on_error == "skip":
            return Skipped(reason)
        raise ValueError(f"{example.get('where', 'an example')}: {what}, or skip such examples by task.on_error=skip")


def _numbers(sizes: list[int]) -> Array:
    """(B, K): 0, 1, 2 … in the order of the rows, −1 behind the last of each example."""
    ends = np.cumsum(sizes)
    places = (ends - sizes)[:, None] + np.arange(max(sizes))
    return np.where(places < ends[:, None], places, -1)


def number(value: Any) -> float | None:
    """A finite number, of which a text may be the written form; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
