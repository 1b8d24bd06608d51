"""The task `replaced-tokens`: replaced-token detection (ELECTRA), masked text that a generator fills in."""

from __future__ import annotations

from ....core.metrics.base import Metric
from ....data.tokenizers.protocol import TextDecoder
from ..masked_language_modeling.task import MaskedLanguageModel, Share
from .metric import ReplacedTokenMetric


class ReplacedTokenDetection(MaskedLanguageModel, kind="replaced-tokens"):
    """The input of ELECTRA's generator (Clark et al. 2020, §2): rows of text in which all predicted tokens are masked.

    The model's head and objective are both `replaced-tokens`; the head contains the generator.
    """

    masked: Share = 1.0
    swapped: Share = 0.0
    next_sentence: bool = False

    def metric(self, tokenizer: TextDecoder | None) -> Metric:
        return ReplacedTokenMetric(tokenizer)
