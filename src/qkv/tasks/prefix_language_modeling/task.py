"""The task `prefix-language-model` (T5 §3.2.3): a prefix is read from both sides, the rest is predicted token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...core.batch import IGNORE
from ...core.layout import Role
from ...data.batching.encoded import Encoded
from ...data.batching.ragged import Ragged
from ...data.batching.rows import Rows
from ...data.source import Counts
from ...data.task import RandomContext, TextTask
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ...tokenizers.tokenizer import Tokenizer
from ..pretraining import corruption
from ..pretraining.rows import TOO_SHORT, leave_out, room_for
from .metric import PrefixMetric

if TYPE_CHECKING:
    from ...data.batching.settings import Batching


class PrefixLanguageModel(TextTask, kind="prefix-language-model"):
    """Rows of text, each cut at a random place: the tokens before it have the role PREFIX, so that a decoder whose pattern
    is `causal() | prefix()` reads them from both sides, and labels are the tokens behind it (Raffel et al. 2020, §3.2.3).

    A text of a single token is skipped and counted.
    """

    def rows(
        self, found: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        texts, random = found.sides[0].compact(), randomness.generator
        bos, eos = (-1 if token is None else token for token in (tokenizer.bos_id, tokenizer.eos_id))
        # A row is one token longer than its input, which is what the labels are ahead of it.
        room = room_for(batching.context + 1, int(bos >= 0))
        leave_out(counts, TOO_SHORT, texts.lengths < 2)
        cut, owner = corruption.windows(texts, room, random if randomness.training else None)
        final = np.append(owner[1:] != owner[:-1], True)[: len(owner)] & found.ends[owner] & (cut.lengths < room)
        whole = cut.framed(np.full(len(cut), bos, np.int32), np.where(final, eos, -1).astype(np.int32))
        inputs = whole.part(leave=1)
        prefix = 1 + (random.random(len(whole)) * (inputs.lengths - 1)).astype(np.int64)
        place = np.arange(int(inputs.lengths.sum())) - np.repeat(
            np.cumsum(inputs.lengths) - inputs.lengths, inputs.lengths
        )
        before = np.repeat(prefix, inputs.lengths)
        following = whole.part(skip=1).compact().flat
        labels = np.where(place >= before - 1, following, np.int32(IGNORE))
        roles = np.where(place < before, np.int32(Role.PREFIX), np.int32(Role.PLAIN))
        return Rows(inputs, Ragged.runs(labels, inputs.lengths), roles=Ragged.runs(roles, inputs.lengths))

    def metric(self, tokenizer: Encoder | None) -> Metric:
        assert isinstance(tokenizer, Tokenizer)
        return PrefixMetric(tokenizer)
