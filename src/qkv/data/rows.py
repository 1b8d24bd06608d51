"""From examples to rows of token ids: where sequences begin and end, what is predicted from what, what is too long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal, NamedTuple, Protocol

from ..core.batch import IGNORE
from .packing import pack
from .sources import Counts, Example

_CHARACTERS_A_TOKEN = 64  # no text has so many on average: a longer text is over-long before it is tokenized
_AT_ONCE = 1000  # texts given to the tokenizer in one call
_PART = 1 << 18  # characters of running text given to it in one piece


class Encoder(Protocol):
    """What is needed of a tokenizer. `encode_batch` adds no token of its own."""

    @property
    def pad_id(self) -> int | None: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def eos_id(self) -> int | None: ...

    def encode_batch(self, texts: list[str], /) -> Sequence[Sequence[int]]: ...


@dataclass
class Row:
    """One row of a batch.

    inputs:    what the (decoder) model reads; labels[t] is what it should say after inputs[: t + 1], or −100.
    source:    what the encoder reads, in a sequence-to-sequence row.
    documents: lengths of the isolated documents packed into the row; empty for one plain sequence.
    """

    inputs: list[int]
    labels: list[int]
    source: list[int] | None = None
    documents: tuple[int, ...] = ()
    example: Example | None = None

    @property
    def slots(self) -> int:
        return len(self.inputs) + len(self.source or ())


class Limits(NamedTuple):
    """What is too long, in tokens with the end-of-sequence token, and what becomes of it."""

    longest: int
    over_long: Literal["skip", "cut"]


def pair_rows(examples: Sequence[Example], tokenizer: Encoder, limits: Limits, counts: Counts) -> list[Row]:
    """Encoder reads source + eos, decoder bos + target; labels are target + eos, without the eos where they are cut."""
    start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    end = tokenizer.eos_id
    if start is None or end is None:
        raise ValueError("sequence to sequence needs a tokenizer with an end-of-sequence token")
    rows = []
    for example, source, target in _encoded_pairs(examples, tokenizer, limits, counts):
        source = [*source[: limits.longest - 1], end]
        labels = [*target, end][: limits.longest]
        rows.append(Row([start, *labels[:-1]], labels, source, example=example))
    return rows


def prompt_rows(examples: Sequence[Example], tokenizer: Encoder, limits: Limits, counts: Counts) -> list[Row]:
    """Pairs for a decoder alone: bos? + source + eos + target + eos, with labels on the target and its eos only."""
    end = tokenizer.eos_id
    if end is None:
        raise ValueError("pairs in one sequence need a tokenizer with an end-of-sequence token")
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    rows = []
    for example, source, target in _encoded_pairs(examples, tokenizer, limits, counts, together=True):
        prompt = [*begin, *source, end]
        whole = [*prompt, *target, end]
        labels = [IGNORE] * (len(prompt) - 1) + whole[len(prompt) :]
        row = Row(whole[:-1][: limits.longest], labels[: limits.longest], example=example)
        if any(label != IGNORE for label in row.labels):
            rows.append(row)
        else:
            counts.skipped["with a prompt that fills the context"] += 1
    return rows


def _encoded_pairs(
    examples: Sequence[Example], tokenizer: Encoder, limits: Limits, counts: Counts, together: bool = False
) -> Iterator[tuple[Example, Sequence[int], Sequence[int]]]:
    """Pairs with their tokens; what is too long is skipped, or counted for the caller to cut."""
    most = limits.longest * _CHARACTERS_A_TOKEN
    fitting = []
    for example in examples:
        if limits.over_long == "skip" and max(len(example["source"]), len(example["target"])) > most:
            counts.skipped["over-long"] += 1
        else:
            fitting.append(example)
    for at in range(0, len(fitting), _AT_ONCE):
        some = fitting[at : at + _AT_ONCE]
        sources = tokenizer.encode_batch([example["source"][:most] for example in some])
        targets = tokenizer.encode_batch([example["target"][:most] for example in some])
        for example, source, target in zip(some, sources, targets, strict=True):
            room = limits.longest - 1  # for the end of the sequence
            over = len(source) + len(target) > room - 1 if together else max(len(source), len(target)) > room
            if over and limits.over_long == "skip":
                counts.skipped["over-long"] += 1
                continue
            counts.cut += over
            yield example, source, target


class _Document(NamedTuple):
    """Inputs and labels of one document (or piece of one), of equal length."""

    inputs: list[int]
    labels: list[int]


def contiguous_rows(examples: Sequence[Example], tokenizer: Encoder, context: int, random: Random | None) -> list[Row]:
    """All documents, bos? + text + eos, one after the other, cut into rows of `context` tokens.

    No label crosses from a document into the next. With `random`, the first cut falls at a random place, so that each
    epoch has other rows.
    """
    inputs: list[int] = []
    labels: list[int] = []
    for document in _documents(examples, tokenizer, keep_end=True):
        inputs += document.inputs
        labels += document.labels
    first = random.randint(1, context) if random is not None and len(inputs) > context else context
    cuts = [0, *range(first, len(inputs), context), len(inputs)] if inputs else []
    rows = [Row(inputs[a:b], labels[a:b]) for a, b in pairwise(cuts)]
    return [row for row in rows if any(label != IGNORE for label in row.labels)]


def packed_rows(examples: Sequence[Example], tokenizer: Encoder, context: int) -> list[Row]:
    """Documents packed into rows of `context` tokens, isolated from one another; a longer one is split."""
    parts = []
    for document in _documents(examples, tokenizer, keep_end=False):
        for at in range(0, len(document.inputs), context):
            parts.append(_Document(document.inputs[at : at + context], document.labels[at : at + context]))
    return _join(parts, context)


def packed_prompts(rows: Sequence[Row], context: int) -> list[Row]:
    """Rows of one prompt and answer each, packed into rows of `context` tokens."""
    return _join([_Document(row.inputs, row.labels) for row in rows], context)


def _join(parts: Sequence[_Document], context: int) -> list[Row]:
    joined = []
    for members in pack([len(part.inputs) for part in parts], context):
        inputs = [token for i in members for token in parts[i].inputs]
        labels = [label for i in members for label in parts[i].labels]
        joined.append(Row(inputs, labels, documents=tuple(len(parts[i].inputs) for i in members)))
    return joined


def _documents(examples: Sequence[Example], tokenizer: Encoder, keep_end: bool) -> Iterator[_Document]:
    """Each text with its labels, shifted here once. `keep_end` also feeds the last token, which predicts nothing."""
    begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    end = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    for at in range(0, len(examples), _AT_ONCE):
        some = examples[at : at + _AT_ONCE]
        for example, tokens in zip(some, _encode_texts([e["text"] for e in some], tokenizer), strict=True):
            piece = example.get("piece", "")
            ids = [*(begin if piece in ("", "first") else ()), *tokens, *(end if piece in ("", "last") else ())]
            if len(ids) > 1:
                yield _Document(ids, [*ids[1:], IGNORE]) if keep_end else _Document(ids[:-1], ids[1:])


def _encode_texts(texts: Sequence[str], tokenizer: Encoder) -> Iterator[list[int]]:
    """Tokens of each text; a huge one is tokenized in parts, which bounds time and memory."""
    parts = [[text[at : at + _PART] for at in range(0, max(1, len(text)), _PART)] for text in texts]
    encoded = iter(tokenizer.encode_batch([part for text in parts for part in text]))
    for text in parts:
        yield [token for _ in text for token in next(encoded)]
