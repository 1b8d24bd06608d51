"""The task `choice`: which of several candidates answers a question or continues a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data.source import Example, Skipped
from ...data.task import Item
from ...metrics.base import Metric
from ...tokenizers.protocol import Encoder
from ..whole_texts import Sentences
from .metric import ChoiceMetric


class Choice(Sentences, kind="choice"):
    """Each candidate is read together with the text, and scored; the scores of a text's candidates meet in a softmax: the
    objective `choice` (Radford et al. 2018, §3.3). The head is a `sequence-classifier` with one label.
    """

    @property
    def n_labels(self) -> int | None:
        return 1

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        return [(example["text"], candidate) for candidate in example["choices"]]

    def labels(self, example: Example, inputs: Item) -> Any | Skipped:
        answer, count = example["answer"], len(example["choices"])
        if type(answer) is not int:
            what = (
                f"the answer is {answer!r}, which is none of the {count} candidates, nor a candidate's number or letter"
            )
            return self._refused(example, f"{what}; give one", "whose answer is no candidate")
        if not 0 <= answer < count:
            what = f"the answer is {answer}, and there are {count} candidates, numbered from 0; give one of them"
            return self._refused(example, what, "whose answer is no candidate")
        return np.int64(answer)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ChoiceMetric()
