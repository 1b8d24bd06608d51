"""Base class of tasks on whole texts or pairs of texts: special tokens, truncation, one or several rows per example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Self, cast

import numpy as np
from pydantic import Field

from ...core.batch import Batch
from ...data.batching.numpy_batch import Array, NumpyBatch, PaddedLayout
from ...data.batching.rows import OVER_LONG
from ...data.files.number_tables import finite
from ...data.source import Example, OnError, Skipped, Source
from ...data.task import Item, RandomContext, Task, format_value, joined
from ...data.tokenizers.protocol import Encoder, TextDecoder
from ...nn.layers.embedding import Input
from .classes import skip_or_raise
from .framing import Framed, framed

TEXTS = ("text", "pair")
_AT_ONCE = 1000  # texts tokenized in one call


@dataclass(frozen=True, eq=False)
class Framings(Item):
    """An example with its rows."""

    rows: tuple[Framed, ...] = ()

    @property
    def cut(self) -> bool:
        """Whether a text was truncated."""
        return any(row.cut for row in self.rows)

    @property
    def lengths(self) -> tuple[int, int]:
        """Slots of the rows, padded to the longest, so no batch exceeds its size."""
        return len(self.rows) * max(len(row.ids) for row in self.rows), 0


class Sentences(Task):
    """Base class of tasks on whole texts.

    longest:    the most tokens in a row, special tokens included.
    over_long:  "cut" longer texts at their ends, the longer of two first, or "skip" the example; both are counted.
    on_error:   for an example whose label is of the wrong type, out of range, or a class that is not in the training data:
                "raise" an error that says where it is, or "skip" and count it.
    segments:   the number of token types; by default the model's.
    global_tokens: which token of a row has global attention, in a model that has it: the `first`, from which classes are
                predicted, and the default there (Longformer, Beltagy et al. 2020, §3); or `none`.
    """

    longest: int = Field(default=128, ge=4)
    over_long: Literal["cut", "skip"] = "cut"
    on_error: OnError = "raise"
    segments: int | None = Field(default=None, ge=0)
    global_tokens: Literal["first", "none"] | None = None

    def with_global_tokens(self) -> Self:
        return self if self.global_tokens else self.replace(global_tokens="first")

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        """Raises ValueError if the data have no labels, or only one class."""
        return self._filled(inputs)

    def texts(self, example: Example) -> Iterator[str]:
        yield from (text for row in self.sides(example) for text in row)

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        """Return the rows of an example, each one text or two that are read together. By default there is one row."""
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
            if rows and all(rows)
            else Skipped("without a text")
            for example, rows in zip(examples, sides, strict=True)
        ]

    def repeats(self, tokenizer: Encoder | None) -> bool:
        return not getattr(tokenizer, "dropout", 0)

    def collate(self, items: Sequence[Item], pad: int) -> NumpyBatch:
        """Stack the rows of all examples. The targets' `rows` (B, K) are the indices of each example's rows, −1 for none."""
        groups = [cast(Framings, item).rows for item in items]
        rows = [row for group in groups for row in group]
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
            {"rows": _row_numbers([len(group) for group in groups])},
            counts={"loss": len(items)},
            tokens=sum(spans.lengths),
            slots=arrays["ids"].size,
            texts=tuple(item.example for item in items),
        )

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the rows of one example, and its label."""
        lines: list[tuple[str, str]] = []
        for at in (number for number in batch.targets["rows"][row].tolist() if number >= 0):
            real = batch.inputs["layout"].lengths[at]
            for name in ("ids", "token_types"):
                if name in batch.inputs:
                    lines.append((name, format_value(batch.inputs[name][at][:real], tokenizer, name)))
        return lines if batch.labels is None else [*lines, ("label", self.label_text(batch.labels[row].item()))]

    def _ids(self, texts: list[str], tokenizer: Any, randomness: RandomContext) -> Iterator[Sequence[int]]:
        """Tokenize texts; in training with the tokenizer's dropout, if it has one."""
        sampled = randomness.training and bool(getattr(tokenizer, "dropout", 0))
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            if sampled:
                yield from tokenizer.sample(part, randomness.generator.integers(2**62, size=len(part)).tolist())
            else:
                yield from tokenizer.encode_batch(part)

    def _inputs(
        self, example: Example, rows: list[tuple[Sequence[int], ...]], tokenizer: Encoder
    ) -> Sequence[Item] | Skipped:
        framings = tuple(framed(tokenizer, *row, room=self.longest) for row in rows)
        inputs = Framings({"ids": framings[0].ids}, example=example, rows=framings)
        return Skipped(OVER_LONG) if self.over_long == "skip" and inputs.cut else [inputs]

    def _filled(self, inputs: Input, **defaults: Any) -> Self:
        """Fill in every field that is not set."""
        defaults["segments"] = int(getattr(inputs, "token_types", 0))
        return self.replace({name: value for name, value in defaults.items() if getattr(self, name) in (None, ())})

    def _refused(self, example: Example, problem: str, reason: str) -> Skipped:
        """Skip an unusable example, or raise ValueError, as `on_error` says."""
        return skip_or_raise(example, self.on_error, problem, reason)


def _row_numbers(sizes: list[int]) -> Array:
    """(B, K): 0, 1, 2 … in the order of the rows, −1 after the last of each example."""
    ends = np.cumsum(sizes)
    places = (ends - sizes)[:, None] + np.arange(max(sizes))
    return np.where(places < ends[:, None], places, -1)


def number(value: object) -> float | None:
    """Parse a finite number of float32; None for anything else."""
    return None if isinstance(value, bool) or not isinstance(value, int | float | str) else finite(value)
