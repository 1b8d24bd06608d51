"""The tasks `span-corruption` (T5) and `denoising` (BART): the encoder reads corrupted text, the decoder restores it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
from pydantic import Field

from ...data.batching.encoded import Encoded
from ...data.batching.packing import packed_pairs
from ...data.batching.ragged import Ids, Ragged
from ...data.batching.rows import Limits, Rows, frame_of_pairs, pair_rows
from ...data.source import Counts, Source
from ...data.task import RandomContext, TextTask
from ...layers.embedding import Input
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ...tokenizers.tokenizer import Tokenizer
from ..pretraining import corruption
from ..pretraining.lexicon import lexicon
from ..pretraining.rows import TOO_SHORT, leave_out, mask_of, room_for
from .metric import DenoisingMetric

if TYPE_CHECKING:
    from ...data.batching.settings import Batching

SENTINEL = "<extra_id_{}>"

Rate = Annotated[float, Field(gt=0.0, lt=1.0)]
Length = Annotated[float, Field(ge=1.0, allow_inf_nan=False)]


class _Rewriting(TextTask):
    """Texts are cut into rows of `batching.context` tokens; of each the encoder reads one rewriting, and the decoder says
    another. A text of a single token is skipped and counted."""

    def rows(
        self, found: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        texts, frame = found.sides[0].compact(), frame_of_pairs(tokenizer)
        room = room_for(batching.context, len(frame.before) + len(frame.after))
        cut, _ = corruption.windows(texts, room, randomness.generator if randomness.training else None)
        leave_out(counts, TOO_SHORT, texts.lengths < 2)
        whole = cut.compact()
        nothing = np.zeros(len(whole), np.int32)
        sides = self.rewritten(whole, tokenizer, randomness.generator)
        pairs = Encoded(np.arange(len(whole)), sides, nothing)
        rows = pair_rows(pairs, tokenizer, Limits(self.longest(batching.context), "cut"), Counts())
        return packed_pairs(rows, batching.context) if batching.packing else rows

    def rewritten(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        """What is read of rows without gaps, and what is said."""
        raise NotImplementedError

    def longest(self, context: int) -> int:
        """Tokens of the longer side, with what stands around it."""
        return context

    def metric(self, tokenizer: Encoder | None) -> Metric:
        assert isinstance(tokenizer, Tokenizer)
        return DenoisingMetric(tokenizer)


class SpanCorruption(_Rewriting, kind="span-corruption"):
    """T5's pre-training (Raffel et al. 2020, §3.1.4): spans of text are replaced by sentinels, `<extra_id_0>` and on, and
    said behind these.

        Thank you <extra_id_0> me to your party <extra_id_1> week → <extra_id_0> for inviting <extra_id_1> last <extra_id_2>

    rate:      share of the tokens that is replaced.
    mean:      length of a span.
    sentinels: how many a tokenizer that is trained has; one of a loaded model gets those that it lacks.
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

    def rewritten(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        noise = corruption.noise_spans(rows.lengths, self.rate, self.mean, random)
        return corruption.with_sentinels(rows, noise, self._ids(tokenizer))

    def _ids(self, tokenizer: Encoder | None) -> Ids:
        found = [None if not isinstance(tokenizer, Tokenizer) else tokenizer.raw.token_to_id(s) for s in self.special]
        if None in found:
            raise ValueError(
                f"the task span-corruption needs a tokenizer with {self.sentinels} sentinels, and this one has no "
                f"{self.special[found.index(None)]}; lower task.sentinels, or name them in tokenizer.special"
            )
        return np.array(found, np.int32)


class Denoising(_Rewriting, kind="denoising"):
    """BART's pre-training (Lewis et al. 2020, §2.2): sentences in another order, and spans of Poisson(mean) tokens behind
    one mask each; the decoder says the text as it was.

    rate:    share of the tokens that is behind masks.
    mean:    length of a span; one of none is a mask put in between.
    permute: whether sentences change places; `ends` is what a sentence ends with.
    """

    roles: ClassVar[tuple[str, ...]] = ("mask",)

    rate: Rate = 0.3
    mean: Length = 3.0
    permute: bool = True
    ends: tuple[str, ...] = (".", "!", "?", "\n")

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        mask_of(tokenizer)
        return self

    def rewritten(self, rows: Ragged, tokenizer: Encoder, random: np.random.Generator) -> tuple[Ragged, Ragged]:
        assert isinstance(tokenizer, Tokenizer)
        source = rows
        if self.permute:
            source = corruption.permuted(source, lexicon(tokenizer, self.ends).sentences(source), random)
        return corruption.infilled(source, self.rate, self.mean, mask_of(tokenizer), random), rows
