"""The `batching` settings of a recipe: batch size in tokens, maximum lengths, packing, shuffling, workers."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ...core.spec import Spec, brief


class Batching(Spec):
    """How examples become batches: size in tokens, maximum lengths, packing, shuffling and workers.

    tokens:     slots in a batch, including padding: rows × longest row, summed over both sides of pairs.
    max_rows:   maximum number of rows in a batch.
    pool:       number of examples (lines; a piece of a large file counts as 64) sorted by length together. By default
                enough pairs from files for about 250 batches (8 × `tokens`, 131,072 at most), and 8,192 otherwise.
    max_length: maximum length of a side of a pair in tokens, including end-of-sequence.
    context:    width of the rows that text is cut or packed into; maximum length of a prompt with its answer.
    over_long:  whether a longer pair is skipped or cut; both are counted.
    packing:    pack several documents or pairs into a row, isolated; otherwise text continues across documents.
    rows:       of text that is not packed: "documents" are shuffled, and no label crosses from one to the next; a
                "stream" is all text in order, cut into windows in which every label is the next token.
    shuffle:    draw training examples (of a stream: windows) in a different order each epoch.
    workers:    how pools are built ahead; the batches are the same. "auto" for a thread, which reads and tokenizes during
                training; a number of processes; 0 for neither.
    cache:      MiB of memory for the ids of training examples, so texts are tokenized once.
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
            raise ValueError(
                "packing isolates documents, and a stream continues across them; leave out packing or rows"
            )
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
        """Raise ValueError if the longest allowed row alone exceeds the token budget."""
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
