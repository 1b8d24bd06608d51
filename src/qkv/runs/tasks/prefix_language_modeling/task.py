"""The task and objective `prefix-language-model`: prefix language modeling with a bidirectional prefix (T5 §3.2.3)."""

from __future__ import annotations

import numpy as np

from ....core.batch import IGNORE
from ....core.layout import Role
from ....core.metrics.base import Metric
from ....data.batching.encoded import Encoded
from ....data.batching.ragged import Ragged
from ....data.batching.rows import Rows
from ....data.batching.settings import Batching
from ....data.source import Counts
from ....data.task import RandomContext, TextTask
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....data.tokenizers.tokenizer import Tokenizer
from ....training.objective import LabelObjective
from ..pretraining.rows import cut_rows, room_for
from .metric import PrefixMetric


class PrefixLanguageModel(TextTask, kind="prefix-language-model"):
    """Rows of text, each cut at a random position. The tokens before it have the role PREFIX: in a decoder with the
    pattern `causal() | prefix()`, they attend to each other in both directions. Labels are the tokens after it (Raffel
    et al. 2020, §3.2.3).

    A text of a single token is skipped and counted.
    """

    def rows(
        self, encoded: Encoded, tokenizer: Encoder, batching: Batching, randomness: RandomContext, counts: Counts
    ) -> Rows:
        texts = encoded.sides[0].compact()
        bos, eos = (-1 if token is None else token for token in (tokenizer.bos_id, tokenizer.eos_id))
        room = room_for(batching.context + 1, int(bos >= 0))  # a row has one token more than its input
        cut, owner = cut_rows(texts, room, randomness, counts)
        final = np.append(owner[1:] != owner[:-1], True)[: len(owner)] & encoded.ends[owner] & (cut.lengths < room)
        rows = cut.framed(np.full(len(cut), bos, np.int32), np.where(final, eos, -1).astype(np.int32))
        inputs = rows.part(leave=1)
        prefix = 1 + (randomness.generator.random(len(rows)) * (inputs.lengths - 1)).astype(np.int64)
        place = np.arange(int(inputs.lengths.sum())) - np.repeat(
            np.cumsum(inputs.lengths) - inputs.lengths, inputs.lengths
        )
        before = np.repeat(prefix, inputs.lengths)
        following = rows.part(skip=1).compact().flat
        labels = np.where(place >= before - 1, following, np.int32(IGNORE))
        roles = np.where(place < before, np.int32(Role.PREFIX), np.int32(Role.PLAIN))
        return Rows(inputs, Ragged.runs(labels, inputs.lengths), roles=Ragged.runs(roles, inputs.lengths))

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        assert isinstance(tokenizer, Tokenizer)
        return PrefixMetric(tokenizer)


class PrefixLanguageModelObjective(LabelObjective, kind="prefix-language-model"):
    """Cross-entropy of each token after the prefix, predicted from the whole prefix and the tokens before it (Raffel et al.
    2020, §3.2.3). Without tokens with the role PREFIX, this is language modeling."""

    predicts_next = True
