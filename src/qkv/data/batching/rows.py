"""Rows of inputs and labels from token ids: special tokens, label shifting, truncation, and cutting text into windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from random import Random
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.batch import IGNORE
from ..source import Counts, Example
from ..tokenizers.protocol import Encoder, PairFrame
from .encoded import Encoded
from .encoding import source_and_target_tokenizer
from .ragged import Index, Ragged

OVER_LONG = "over-long"  # the reason why an example was skipped


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a pool, before padding.

    inputs:    what the (decoder) model reads; labels[i][t] is the token after inputs[i][: t + 1], or −100.
    source:    what the encoder reads, in sequence-to-sequence rows.
    documents, source_documents: the lengths of the isolated sequences in each packed row.
    examples:  the examples behind the rows, if kept.
    token_types, roles: of the input tokens, if any.
    targets:   further targets of an objective, by name: (n, …).
    """

    inputs: Ragged
    labels: Ragged
    source: Ragged | None = None
    documents: tuple[tuple[int, ...], ...] = ()
    source_documents: tuple[tuple[int, ...], ...] = ()
    examples: tuple[Example, ...] = ()
    token_types: Ragged | None = None
    roles: Ragged | None = None
    targets: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def source_lengths(self) -> Index:
        return self.source.lengths if self.source is not None else np.zeros_like(self.inputs.lengths)

    def take(self, which: Index) -> Rows:
        """Return the rows at the indices `which`, in the order given."""
        numbers = which.tolist()
        return Rows(
            self.inputs.take(which),
            self.labels.take(which),
            self.source.take(which) if self.source is not None else None,
            tuple(self.documents[i] for i in numbers) if self.documents else (),
            tuple(self.source_documents[i] for i in numbers) if self.source_documents else (),
            tuple(self.examples[i] for i in numbers) if self.examples else (),
            None if self.token_types is None else self.token_types.take(which),
            None if self.roles is None else self.roles.take(which),
            {name: target[which] for name, target in self.targets.items()},
        )


class Limits(NamedTuple):
    """The maximum length in tokens, including end-of-sequence, and what to do with longer sequences."""

    longest: int
    over_long: Literal["skip", "cut"]


def pair_rows(encoded: Encoded, tokenizer: Encoder, limits: Limits, counts: Counts) -> Rows:
    """Pairs for an encoder–decoder: source + eos, bos + target, and labels target + eos (without eos if truncated).

    A loaded model has its own special tokens, the `frame` of its tokenizer.
    """
    source_frame, frame = (frame_of_pairs(side) for side in source_and_target_tokenizer(tokenizer))
    room = max(limits.longest - max(len(one.before) + len(one.after) for one in (source_frame, frame)), 0)
    over = np.maximum(*(side.lengths for side in encoded.sides)) > room
    encoded = _fitting(encoded, over, limits, counts)
    source, target = encoded.sides
    joined = _around(target, (frame.start, *frame.before), frame.after)
    return Rows(
        inputs=joined.part(leave=1).upto(limits.longest),
        labels=joined.part(skip=1).upto(limits.longest),
        source=_around(source.upto(room), source_frame.before, source_frame.after),
        examples=encoded.examples,
    )


def frame_of_pairs(tokenizer: Encoder) -> PairFrame:
    """A tokenizer's own frame; else eos ends a text, and bos (or eos if there is none) begins a target."""
    own: PairFrame | None = getattr(tokenizer, "frame", None)  # not every Encoder has one
    if own is not None:
        return own
    start = tokenizer.bos_id if tokenizer.bos_id is not None else tokenizer.eos_id
    if start is None or tokenizer.eos_id is None:
        raise ValueError("sequence to sequence needs a tokenizer with an end-of-sequence token")
    return PairFrame(start, after=(tokenizer.eos_id,))


def prompt_rows(encoded: Encoded, tokenizer: Encoder, limits: Limits, counts: Counts) -> Rows:
    """Pairs for a decoder: bos? + source + eos + target + eos, with labels on the target and its eos only."""
    end = tokenizer.eos_id
    if end is None:
        raise ValueError("pairs in one sequence need a tokenizer with an end-of-sequence token")
    over = sum(side.lengths for side in encoded.sides) > limits.longest - 2
    encoded = _fitting(encoded, np.asarray(over), limits, counts)
    bos = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    prompts, answers = _around(encoded.sides[0], bos, (end,)), _around(encoded.sides[1], (), (end,))
    joined = _joined(prompts, answers)
    prompt_labels = prompts.lengths - 1  # labels that are part of the prompt
    labels = Ragged(joined.flat.copy(), joined.starts + 1, joined.lengths - 1)
    labels.flat[Ragged(labels.flat, labels.starts, prompt_labels).places()] = IGNORE
    which = _answering(prompt_labels < limits.longest, counts)
    texts = tuple(encoded.examples[i] for i in which.tolist()) if encoded.examples else ()
    inputs = joined.part(leave=1).take(which).upto(limits.longest)
    return Rows(inputs, labels.take(which).upto(limits.longest), examples=texts)


def conversation_rows(encoded: Encoded, limits: Limits, counts: Counts) -> Rows:
    """Conversations for a decoder, formatted by the chat template, with labels on the assistant's messages only.

    Texts are not kept, because evaluation uses the labels alone.
    """
    encoded = _fitting(encoded, encoded.sides[0].lengths - 1 > limits.longest, limits, counts)
    ids, mask = (side.compact() for side in encoded.sides)
    trained = Ragged(np.where(mask.flat, ids.flat, np.int32(IGNORE)), ids.starts, ids.lengths)
    labels = trained.part(skip=1).upto(limits.longest)
    which = _answering(np.array([bool((row != IGNORE).any()) for row in labels], bool), counts)
    return Rows(ids.part(leave=1).upto(limits.longest).take(which), labels.take(which))


def _answering(fits: NDArray[np.bool_], counts: Counts) -> Index:
    """The rows that contain the start of an answer; the others are counted as skipped."""
    if not fits.all():
        counts.skipped["with a prompt that fills the context"] += int((~fits).sum())
    return np.flatnonzero(fits)


def _fitting(encoded: Encoded, over: NDArray[np.bool_], limits: Limits, counts: Counts) -> Encoded:
    """The examples without over-long ones; or with them, counted as cut, if the limits say so."""
    n = int(over.sum())
    if limits.over_long == "cut":
        counts.cut += n
        return encoded
    if n:
        counts.skipped[OVER_LONG] += n
        return encoded.take(np.flatnonzero(~over))
    return encoded


def running_rows(encoded: Encoded, tokenizer: Encoder, context: int, random: Random | None) -> Rows:
    """All documents, bos? + text + eos, concatenated and cut into rows of `context` tokens.

    No label crosses from a document into the next. With `random`, the first cut is at a random position, so each
    epoch has different rows.
    """
    documents = predicting(framed_documents(encoded, tokenizer))
    inputs, labels = documents.flat, _following(documents)
    n = len(inputs)
    first = random.randint(1, context) if random is not None and n > context else context
    rows = _cut_at([0, *range(first, n, context), n] if n else [0])
    counted = np.add.reduceat(labels != IGNORE, rows.starts) > 0 if len(rows) else np.zeros(0, bool)
    kept = rows.take(counted)
    return Rows(Ragged(inputs, kept.starts, kept.lengths), Ragged(labels, kept.starts, kept.lengths))


def window_rows(encoded: Encoded, tokenizer: Encoder, context: int, random: Random | None) -> Rows:
    """Consecutive windows of `context` tokens of one stream, in which bos? + text + eos follow one another in order.

    Every label is the stream's next token, or −100 if what followed is held out. With `random`, the first window begins
    at a random place and all are full (the rest at both ends is used in other epochs), unless there is not enough text
    for one.
    """
    documents = framed_documents(encoded, tokenizer)
    n = len(documents.flat) - 1  # the last token has no next one
    if random is None or n <= context:
        rows = _cut_at([*range(0, n, context), n] if n > 0 else [0])
    else:
        first = random.randint(0, min(context - 1, n - context))
        rows = _cut_at(list(range(first, n + 1, context)))
    labels = np.append(documents.flat[1:], np.int32(IGNORE))
    torn = np.flatnonzero(np.diff(encoded.places) != 1)
    labels[(documents.starts + documents.lengths - 1)[torn]] = IGNORE
    return Rows(Ragged(documents.flat, rows.starts, rows.lengths), Ragged(labels, rows.starts, rows.lengths))


# -- documents ------------------------------------------------------------------------------------------------------


def framed_documents(encoded: Encoded, tokenizer: Encoder) -> Ragged:
    """bos? + text + eos?, without gaps; a piece of a document has them only where the document begins or ends."""
    none = np.int32(-1)
    bos, eos = (none if token is None else np.int32(token) for token in (tokenizer.bos_id, tokenizer.eos_id))
    return encoded.sides[0].framed(np.where(encoded.begins, bos, none), np.where(encoded.ends, eos, none))


def predicting(documents: Ragged) -> Ragged:
    """Drop documents of a single token, which have nothing to predict."""
    enough = documents.lengths > 1
    return documents if enough.all() else documents.take(enough).compact()


def _following(documents: Ragged) -> NDArray[np.int32]:
    """The next token of each token in its document; −100 for the last."""
    labels = np.append(documents.flat[1:], np.int32(IGNORE))[: len(documents.flat)]
    labels[documents.starts + documents.lengths - 1] = IGNORE
    return labels


def _around(side: Ragged, before: Sequence[int], after: Sequence[int]) -> Ragged:
    """Every sequence with the same tokens before and after it."""
    n = len(side)
    for first, last in zip_longest(reversed(before), after, fillvalue=-1):
        side = side.framed(np.full(n, first, np.int32), np.full(n, last, np.int32))
    return side


def _joined(first: Ragged, second: Ragged) -> Ragged:
    """Each sequence of the first followed by that of the second."""
    both = Ragged.join([first, second])
    n = len(first)
    laced = both.take(np.arange(2 * n).reshape(2, n).T.ravel()).compact()
    return Ragged.runs(laced.flat, first.lengths + second.lengths)


def _cut_at(cuts: list[int]) -> Ragged:
    """The starts and lengths of sequences from each cut to the next, without an array."""
    edges = np.asarray(cuts, np.int64)
    return Ragged(np.empty(0, np.int32), edges[:-1], np.diff(edges))
