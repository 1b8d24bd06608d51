"""The objective of prefix language modeling: cross-entropy of the tokens behind the prefix."""

from __future__ import annotations

from ...training.objective import LabelObjective


class PrefixLanguageModel(LabelObjective, kind="prefix-language-model"):
    """Each token behind a prefix is predicted from all of the prefix and the tokens before it (Raffel et al. 2020, §3.2.3:
    the decoder's pattern is `causal() | prefix()`). Where no token has the role PREFIX, that is language modeling."""

    predicts_next = True
