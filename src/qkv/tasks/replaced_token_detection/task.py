"""The task `replaced-tokens` (ELECTRA): a generator fills in masked tokens, and the model detects them."""

from __future__ import annotations

from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..masked_language_modeling.task import MaskedLanguageModel, Share
from .metric import ReplacedTokenMetric


class ReplacedTokens(MaskedLanguageModel, kind="replaced-tokens"):
    """What ELECTRA's generator reads (Clark et al. 2020, §2): rows of text, all of the predicted tokens hidden.

    The model has the head `replaced-tokens`, which is that generator too, and learns by the objective of the same name.
    """

    masked: Share = 1.0
    swapped: Share = 0.0
    next_sentence: bool = False

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ReplacedTokenMetric(tokenizer)
