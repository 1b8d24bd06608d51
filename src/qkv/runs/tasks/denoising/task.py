"""The tasks `span-corruption` (T5) and `denoising` (BART): the encoder reads corrupted text, the decoder restores it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from ....core.metrics.base import Metric
from ....data.batching.encoded import Encoded
from ....data.batching.packing import packed_pairs
from ....data.batching.ragged import Ids, Ragged
from ....data.batching.rows import Limits, Rows, frame_of_pairs, pair_rows
from ....data.batching.settings import Batching
from ....data.source import Counts, Source
from ....data.task import RandomContext, TextTask
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....nn.layers.embedding import Input
from ..pretraining import corruption
from ..pretraining.lexicon import lexicon
from ..pretraining.rows import cut_rows, mask_of, room_for
from .metric import DenoisingMetric

SENTINEL = "<extra_id_{}>"

Rate = Annotated[float, Field(gt=0.0, lt=1.0)]
Length = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]


class _EncoderDecoderTask(TextTask):
    """Base of tasks that cut texts into rows of `batching.context` tokens, and each row into a source and a target. A text
    of a single token is skipped and counted."""

    def rows(
        self, encoded: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        frame = frame_of_pairs(tokenizer)
        room = room_for(batching.context, len(frame.before) + len(frame.after))
        cut = cut_rows(encoded.sides[0].compact(), room, randomness, counts)[0].compact()
        sides = self.source_and_target(cut, tokenizer, randomness.generator)
        pairs = Encoded(np.arange(len(cut)), sides, np.zeros(len(cut), np.int32))
        rows = pair_rows(pairs, tokenizer, Limits(self.longest(batching.context), "cut"), Counts())
        return packed_pairs(rows, batching.context) if batching.packing else rows

    def source_and_target(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        """Corrupt rows without gaps: return what the encoder reads, and what the decoder learns."""
        raise NotImplementedError

    def longest(self, context: int) -> int:
        """The most tokens of a side, special tokens included."""
        return context

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        assert isinstance(tokenizer, Tokenizer)
        return DenoisingMetric(tokenizer)


class SpanCorruption(_EncoderDecoderTask, kind="span-corruption"):
    """T5's pre-training (Raffel et al. 2020, §3.1.4): sentinels `<extra_id_0>`, `<extra_id_1>` … replace spans of the
    source; the target is these spans, each after its sentinel.

        Thank you <extra_id_0> me to your party <extra_id_1> week → <extra_id_0> for inviting <extra_id_1> last <extra_id_2>

    rate:      the share of the tokens that is replaced.
    mean:      mean length of a span.
    sentinels: their number. A tokenizer that is trained here gets them; a loaded model's tokenizer gets the ones that
               it lacks.
    """

    rate: Rate = 0.15
    mean: Length = 3.0
    sentinels: int = Field(default=100, ge=2)

    @property
    def special(self) -> tuple[str, ...]:
        return tuple(SENTINEL.format(i) for i in range(self.sentinels))

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        self._ids(tokenizer)
        return self

    def source_and_target(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        noise = corruption.noise_spans(rows.lengths, self.rate, self.mean, random)
        return corruption.with_sentinels(rows, noise, self._ids(tokenizer))

    def _ids(self, tokenizer: Encoder | None) -> Ids:
        ids = [None if not isinstance(tokenizer, Tokenizer) else tokenizer.raw.token_to_id(s) for s in self.special]
        if None in ids:
            raise ValueError(
                f"the task span-corruption needs a tokenizer with {self.sentinels} sentinels, and this one has no "
                f"{self.special[ids.index(None)]}; lower task.sentinels, or name them in tokenizer.special"
            )
        return np.array(ids, np.int32)


class Denoising(_EncoderDecoderTask, kind="denoising"):
    """BART's pre-training (Lewis et al. 2020, §2.2): sentences are shuffled, and one mask replaces each span of
    Poisson(mean) tokens; the target is the original text.

    rate:    the share of the tokens that is replaced.
    mean:    mean length of a span; a span of length 0 inserts a mask.
    permute: whether sentences are shuffled; `ends` are the ends of sentences.
    """

    roles: ClassVar[tuple[str, ...]] = ("mask",)

    rate: Rate = 0.3
    mean: Length = 3.0
    permute: bool = True
    ends: tuple[str, ...] = (".", "!", "?", "\n")

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        mask_of(tokenizer)
        return self

    def source_and_target(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        assert isinstance(tokenizer, Tokenizer)
        source = rows
        if self.permute:
            source = corruption.permuted(source, lexicon(tokenizer, self.ends).sentences(source), random)
        return corruption.infilled(source, self.rate, self.mean, mask_of(tokenizer), random), rows
