"""The task `masked-language-model` (BERT): masked tokens are predicted from both sides, and whether sentences follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ...core.batch import IGNORE, Batch
from ...data.batching.encoded import Encoded
from ...data.batching.packing import packed
from ...data.batching.ragged import Ids, Ragged
from ...data.batching.rows import Rows
from ...data.source import Counts, Source
from ...data.task import RandomContext, TextTask
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ...tokenizers.tokenizer import Tokenizer
from ..framing import Around, frame_of
from ..pretraining import corruption
from ..pretraining.corruption import Flags
from ..pretraining.lexicon import Lexicon, lexicon
from ..pretraining.rows import TOO_SHORT, leave_out, mask_of, room_for
from ..pretraining.sentence_pairs import sentence_pairs
from .metric import MaskedTokenMetric

if TYPE_CHECKING:
    from ...data.batching.settings import Batching

NEXT = "next_sentence"  # the target, and its term of the loss
LONELY = "without the second sentence that task.next_sentence asks for (task.next_sentence=false trains without it)"

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class MaskedLanguageModel(TextTask, kind="masked-language-model"):
    """BERT's pre-training (Devlin et al. 2019, §3.1): `[CLS] a [SEP] b [SEP]` with a share of its tokens hidden, which are
    to be said; and whether b follows a in the text.

    rate:          share of the text's tokens that is predicted.
    masked:        share of these that the model reads as the mask; swapped: as any other word. The rest it reads as it is.
    units:         what is picked as a whole: "tokens"; "words", of which all pieces are hidden; or "spans" of 3.8 words in
                   the mean (Joshi et al. 2020, SpanBERT).
    next_sentence: rows are pairs, half of which are of unrelated sentences; else texts cut into rows. The target is 0 where
                   the second sentence follows, 1 where it is another text's (the order of BERT's classes).
    ends:          what a sentence ends with; "\\n" is the end of a line, for tokenizers that keep it.

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
        self, found: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        words, random = lexicon_of(self, tokenizer), randomness.generator
        assert isinstance(tokenizer, Tokenizer)
        texts = found.sides[0].compact()
        targets: dict[str, NDArray[np.int64]] = {}
        frame = frame_of(tokenizer, 2 if self.next_sentence else 1)
        room = room_for(batching.context, frame.size)
        if not self.next_sentence:
            cut, _ = corruption.windows(texts, room, random if randomness.training else None)
            leave_out(counts, TOO_SHORT, texts.lengths < 2)
            parts = [cut]
        elif batching.packing:
            raise ValueError(
                "a row is one pair of sentences, so packing is for task.next_sentence=false: leave out one"
            )
        else:
            pairs = sentence_pairs(texts, words.ends[texts.flat], room, random)
            leave_out(counts, LONELY, pairs.lonely)
            parts, targets = [pairs.first, pairs.second], {NEXT: (~pairs.follows).astype(np.int64)}
        made = laid(parts, frame)
        hidden, labels = self.corrupted(made, words, mask_of(tokenizer), random)
        lengths = made.rows.lengths
        rows = Rows(
            Ragged.runs(hidden, lengths),
            Ragged.runs(labels, lengths),
            token_types=Ragged.runs(made.types, lengths),
            targets=targets,
        )
        return packed(rows, batching.context) if batching.packing else rows

    def corrupted(self, made: Laid, words: Lexicon, mask: int, random: np.random.Generator) -> tuple[Ids, Ids]:
        """What the model reads of rows, and what it is to say."""
        rows, ids = made.rows, made.rows.flat
        begins = np.ones(len(ids), bool)
        if self.units != "tokens":
            edges = ~made.free | np.append(False, ~made.free[:-1])[: len(ids)]  # no unit goes over a separator
            begins = words.words(rows) | edges
        if self.units == "spans":
            begins = corruption.spans(begins, rows, random) | edges
        which = corruption.picked(rows, made.free, begins, self.rate, random)
        together = begins if self.units == "spans" else None
        shares = self.masked, self.swapped
        hidden = corruption.hidden(ids, which, mask, words.ordinary, random, shares, together)
        return hidden, corruption.labels_of(ids, which)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return MaskedTokenMetric(tokenizer)

    def preview(self, batch: Batch, row: int, tokenizer: Any) -> list[tuple[str, str]]:
        """The tokens as they are read, with `{what they were}` behind those that are predicted."""
        assert batch.labels is not None
        ids, labels = batch.inputs["ids"][row].tolist(), batch.labels[row].tolist()
        real = batch.inputs["layout"].valid.expand(batch.labels.shape)[row].tolist()
        tokens = tokenizer.tokens(ids)
        read = [
            token if label == IGNORE else f"{token}{{{tokenizer.tokens([label])[0]}}}"
            for token, label, seen in zip(tokens, labels, real, strict=True)
            if seen
        ]
        lines = [("read", " ".join(read))]
        if NEXT in batch.targets:
            lines.append(("second sentence", "another text's" if batch.targets[NEXT][row] else "follows the first"))
        return lines


class Laid(NamedTuple):
    """Rows with what stands around their texts; of every token its type, and whether it is of a text."""

    rows: Ragged
    types: Ids
    free: Flags


def laid(parts: list[Ragged], frame: Around) -> Laid:
    """One or two texts a row, framed."""
    n = len(parts[0])
    pieces: list[tuple[Ragged, int, bool]] = []
    for number, (tokens, types) in enumerate(zip(frame.tokens, frame.types, strict=True)):
        if number:
            pieces.append((parts[number - 1], frame.of_texts[number - 1], True))
        for token, kind in zip(tokens, types, strict=True):
            always = np.zeros(n, np.int64)
            pieces.append((Ragged(np.array([token], np.int32), always, always + 1), kind, False))
    joined = Ragged.join(piece for piece, _, _ in pieces)
    laced = joined.take(np.arange(len(pieces) * n).reshape(len(pieces), n).T.ravel()).compact()
    kinds, free = (np.array([piece[k] for piece in pieces]) for k in (1, 2))
    return Laid(
        Ragged.runs(laced.flat, laced.lengths.reshape(n, len(pieces)).sum(1)),
        np.repeat(np.tile(kinds, n), laced.lengths).astype(np.int32),
        np.repeat(np.tile(free, n), laced.lengths).astype(bool),
    )


def lexicon_of(task: MaskedLanguageModel, tokenizer: Encoder | None) -> Lexicon:
    """What the tokens of a vocabulary are. Raises ValueError where there is no mask among them."""
    mask_of(tokenizer)
    assert isinstance(tokenizer, Tokenizer)
    return lexicon(tokenizer, task.ends)
