"""The task `choice`: multiple choice among candidates that answer a question or continue a text; objective, prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from torch import nn
from torch.nn import functional as F

from ....core.batch import Batch, Term, Terms
from ....core.metrics.base import Metric
from ....core.spec import brief
from ....data.source import SPLITS, Example, Skipped, Source
from ....data.task import Item, Labels
from ....data.tokenizers.protocol import Encoder
from ....nn.layers.embedding import Input
from ....nn.layers.losses import at_least_fp32
from ....training.objective import Objective
from ..prediction import Prediction, TrainedModel, parts_of
from ..prediction_batches import predict_examples
from ..whole_texts import Sentences
from .metric import ChoiceMetric, candidate_scores


class Choice(Sentences, kind="choice"):
    """Each candidate is read together with the text and gets a score; the objective `choice` is a soft-max over the scores
    of a text's candidates (Radford et al. 2018, §3.3). The head is a `sequence-classifier` with one label.
    """

    fields = ("text", "choices", "answer")

    @property
    def n_labels(self) -> int | None:
        return 1

    def sides(self, example: Example) -> list[tuple[str, ...]]:
        return [(example["text"], candidate) for candidate in example["choices"]]

    def resolve(self, source: Source, tokenizer: Encoder | None, inputs: Input) -> Self:
        for example in source.examples("train", shuffle=False):
            self._answer(example)
        return super().resolve(source, tokenizer, inputs)

    def check_labels(self, source: Source) -> list[str]:
        for split in SPLITS[1:]:
            for example in source.examples(split, shuffle=False):
                self._answer(example)
        return []

    def labels(self, example: Example, inputs: Item) -> Labels | Skipped:
        return self._answer(example)

    def _answer(self, example: Example) -> np.int64 | Skipped:
        """The index of the right candidate, or why the example is skipped."""
        answer, count = example["answer"], len(example["choices"])
        if type(answer) is not int:
            what = f"the answer is {brief(answer)}, none of the {count} candidates, nor a candidate's number or letter"
            return self._refused(example, f"{what}; give one", "whose answer is no candidate")
        if not 0 <= answer < count:
            what = f"the answer is {answer}, and there are {count} candidates, numbered from 0; give one of them"
            return self._refused(example, what, "whose answer is no candidate")
        return np.int64(answer)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return ChoiceMetric()


class Choose(Objective, kind="choice"):
    """−log softmax over the scores of an example's candidates, at the right one (Radford et al. 2018, §3.3).

    The model gives one score per row; the targets' `rows` (B, K) are the rows of each example, −1 for none; labels (B,) are
    the index of the right one. In nats per example.
    """

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        if batch.labels is None or "rows" not in batch.targets:
            raise ValueError("the objective 'choice' needs examples with candidates; give the task choice")
        scores = model(**batch.inputs)
        if scores.ndim != 2 or scores.shape[1] != 1:
            raise ValueError(
                f"the objective 'choice' needs one score for each candidate, and the model gives {tuple(scores.shape)}; "
                "give it the head sequence-classifier"
            )
        logits = candidate_scores(at_least_fp32(scores), batch)
        return {"loss": Term(F.cross_entropy(logits, batch.labels, reduction="sum"), len(batch.labels))}


@Choice.predicts
def predict(task: Choice, trained: TrainedModel, lines: Sequence[str], **_: Any) -> list[Prediction]:
    """Predict the index of the best candidate, from 0, of each line TEXT<tab>CHOICE<tab>CHOICE<tab>…; `fields` have the
    probability of each candidate, in their order.
    """
    examples = [_example(line, f"text {i}") for i, line in enumerate(lines, 1)]
    rows = predict_examples(trained, task, examples, lambda *one: candidate_scores(*one).softmax(-1).tolist())
    return [_prediction(line, one["choices"], row) for line, one, row in zip(lines, examples, rows, strict=True)]


def _example(line: str, where: str) -> Example:
    text, *choices = parts_of(line)
    if len(choices) < 2 or not all(part.strip() for part in (text, *choices)):
        raise ValueError(f"{where} is {line[:60]!r}, and this run reads CONTEXT<tab>CHOICE<tab>CHOICE<tab>…")
    return {"text": text, "choices": choices, "where": where}


def _prediction(line: str, choices: Sequence[str], probabilities: Sequence[float]) -> Prediction:
    pairs = list(zip(choices, probabilities, strict=False))  # rows of a batch are as wide as its longest
    best = max(range(len(pairs)), key=lambda i: pairs[i][1])
    text = "  ".join(f"{choice} {share:.3f}" for choice, share in sorted(pairs, key=lambda pair: -pair[1]))
    described = [{"choice": choice, "probability": share} for choice, share in pairs]
    return Prediction(line, best, text, {"number": best, "choice": choices[best], "choices": described})
