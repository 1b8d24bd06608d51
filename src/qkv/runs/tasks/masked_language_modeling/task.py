"""The task `masked-language-model`: masked language modeling and next-sentence prediction (BERT)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ....core.batch import IGNORE, Batch
from ....core.metrics.base import Metric
from ....data.batching.encoded import Encoded
from ....data.batching.packing import packed
from ....data.batching.ragged import Ids, Ragged
from ....data.batching.rows import Rows
from ....data.batching.settings import Batching
from ....data.source import Counts, Source
from ....data.task import RandomContext, TextTask
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....nn.layers.embedding import Input
from ..framing import TextFrame, frame_of
from ..pretraining import corruption
from ..pretraining.corruption import Flags
from ..pretraining.lexicon import Lexicon, lexicon
from ..pretraining.rows import cut_rows, leave_out, mask_of, room_for
from ..pretraining.sentence_pairs import sentence_pairs
from .metric import NEXT, MaskedTokenMetric

LONELY = "without the second sentence that task.next_sentence asks for (task.next_sentence=false trains without it)"

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class MaskedLanguageModel(TextTask, kind="masked-language-model"):
    """BERT's pre-training (Devlin et al. 2019, §3.1): predict a share of the tokens in `[CLS] a [SEP] b [SEP]`, which are
    masked, and whether b follows a in the text.

    rate:          the share of the text's tokens that is predicted.
    masked:        the share of these that is replaced by the mask; swapped: by a random token. The rest is left unchanged.
    units:         what is selected as a whole: "tokens"; "words" with all their pieces; or "spans" of 3.8 words on average
                   (Joshi et al. 2020, SpanBERT).
    next_sentence: rows are pairs, half of them unrelated sentences; else texts are cut into rows. The target is 0 if the
                   second sentence follows the first, 1 if it is from another text (the order of BERT's classes).
    ends:          the ends of sentences; "\\n" is the end of a line, for tokenizers that keep it.

    A text without a second sentence, or of a single token, is skipped and counted.
    """

    roles: ClassVar[tuple[str, ...]] = ("mask",)

    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    masked: Share = 0.8
    swapped: Share = 0.1
    units: Literal["tokens", "words", "spans"] = "tokens"
    next_sentence: bool = True
    ends: tuple[str, ...] = (".", "!", "?", "\n")

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.masked + self.swapped > 1.0 + 1e-9:
            raise ValueError(
                f"masked and swapped are shares of the predicted tokens, {self.masked} and {self.swapped} here: give two "
                "that make 1 or less"
            )
        return self

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        lexicon_of(self, tokenizer)
        return self

    def rows(
        self, encoded: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        words, random = lexicon_of(self, tokenizer), randomness.generator
        assert isinstance(tokenizer, Tokenizer)
        texts = encoded.sides[0].compact()
        targets: dict[str, NDArray[np.int64]] = {}
        frame = frame_of(tokenizer, 2 if self.next_sentence else 1)
        room = room_for(batching.context, frame.size)
        if not self.next_sentence:
            parts = [cut_rows(texts, room, randomness, counts)[0]]
        elif batching.packing:
            raise ValueError(
                "a row is one pair of sentences, so packing is for task.next_sentence=false: leave out one"
            )
        else:
            pairs = sentence_pairs(texts, words.ends[texts.flat], room, random)
            leave_out(counts, LONELY, pairs.lonely)
            parts, targets = [pairs.first, pairs.second], {NEXT: (~pairs.follows).astype(np.int64)}
        framed = framed_rows(parts, frame)
        hidden, labels = self.corrupted(framed, words, mask_of(tokenizer), random)
        lengths = framed.rows.lengths
        rows = Rows(
            Ragged.runs(hidden, lengths),
            Ragged.runs(labels, lengths),
            token_types=Ragged.runs(framed.types, lengths),
            targets=targets,
        )
        return packed(rows, batching.context) if batching.packing else rows

    def corrupted(self, framed: FramedRows, words: Lexicon, mask: int, random: np.random.Generator) -> tuple[Ids, Ids]:
        """Mask rows: return the ids that the model reads, and the labels."""
        rows, ids, free = framed.rows, framed.rows.flat, framed.free
        begins = np.ones(len(ids), bool)
        if self.units != "tokens":
            edges = ~free | np.append(False, ~free[:-1])[: len(ids)]  # no unit crosses a separator
            begins = words.words(rows) | edges
        if self.units == "spans":
            begins = corruption.spans(begins, rows, random) | edges
        which = corruption.picked(rows, free, begins, self.rate, random)
        together = begins if self.units == "spans" else None
        shares = self.masked, self.swapped
        hidden = corruption.hidden(ids, which, mask, words.ordinary, random, shares, together)
        return hidden, corruption.labels_of(ids, which)

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        return MaskedTokenMetric(tokenizer)

    def preview(self, batch: Batch, row: int, tokenizer: TextDecoder | None) -> list[tuple[str, str]]:
        """Return the tokens as the model reads them, with `{the original}` after each predicted token."""
        assert batch.labels is not None
        ids, labels = batch.inputs["ids"][row].tolist(), batch.labels[row].tolist()
        real = batch.inputs["layout"].valid.expand(batch.labels.shape)[row].tolist()
        assert tokenizer is not None
        tokens = tokenizer.tokens(ids)
        shown = [
            token if label == IGNORE else f"{token}{{{tokenizer.tokens([label])[0]}}}"
            for token, label, seen in zip(tokens, labels, real, strict=True)
            if seen
        ]
        lines = [("read", " ".join(shown))]
        if NEXT in batch.targets:
            lines.append(("second sentence", "another text's" if batch.targets[NEXT][row] else "follows the first"))
        return lines


class FramedRows(NamedTuple):
    """Rows with special tokens around their texts; the type of each token, and whether it belongs to a text."""

    rows: Ragged
    types: Ids
    free: Flags


def framed_rows(parts: list[Ragged], frame: TextFrame) -> FramedRows:
    """Put special tokens around the one text or the two of each row."""
    n = len(parts[0])
    pieces: list[tuple[Ragged, int, bool]] = []
    for number, (tokens, types) in enumerate(zip(frame.tokens, frame.types, strict=True)):
        if number:
            pieces.append((parts[number - 1], frame.text_types[number - 1], True))
        for token, kind in zip(tokens, types, strict=True):
            zeros = np.zeros(n, np.int64)
            pieces.append((Ragged(np.array([token], np.int32), zeros, zeros + 1), kind, False))
    joined = Ragged.join(piece for piece, _, _ in pieces)
    laced = joined.take(np.arange(len(pieces) * n).reshape(len(pieces), n).T.ravel()).compact()
    kinds, free = (np.array([piece[k] for piece in pieces]) for k in (1, 2))
    return FramedRows(
        Ragged.runs(laced.flat, laced.lengths.reshape(n, len(pieces)).sum(1)),
        np.repeat(np.tile(kinds, n), laced.lengths).astype(np.int32),
        np.repeat(np.tile(free, n), laced.lengths).astype(bool),
    )


def lexicon_of(task: MaskedLanguageModel, tokenizer: Encoder | None) -> Lexicon:
    """Return the lexicon of a tokenizer. Raises ValueError if it has no mask token."""
    mask_of(tokenizer)
    assert isinstance(tokenizer, Tokenizer)
    return lexicon(tokenizer, task.ends)
