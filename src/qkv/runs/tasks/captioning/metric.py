"""Exact match and BLEU of captions and answers, which the model generates greedily."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.text import bleu, chrf
from ....data.media.images import denormalized
from ....data.media.png import png
from ....data.tokenizers.protocol import Encoder, TextDecoder

register("exact", "Exact match", "fraction", higher_is_better=True)
register("exact_captions", scale="fraction", higher_is_better=True, part=True)
register("exact_answers", scale="fraction", higher_is_better=True, part=True)

_KEPT = 32  # pictures kept to be shown


class Writer(Protocol):
    """What the metric needs of its task."""

    @property
    def mean(self) -> tuple[float, ...]: ...
    @property
    def std(self) -> tuple[float, ...]: ...
    def pictures_of(self, batch: Batch) -> Tensor: ...
    def prompts_of(self, batch: Batch) -> list[list[int]]: ...
    def written(
        self, model: MeasuredModel, pictures: Tensor, prompts: Sequence[list[int]], tokenizer: TextDecoder
    ) -> list[str]: ...


class CaptionMetric(Metric):
    """exact: the share of outputs that equal the truth, also for captions and answers apart if there are both;
    bleu: of the captions (Papineni et al. 2002), by sacreBLEU.

    `task` writes the outputs.
    """

    def __init__(self, tokenizer: Encoder | None, task: Writer) -> None:
        assert tokenizer is not None and tokenizer.eos_id is not None
        self._tokenizer, self._task = cast(Any, tokenizer), task
        self._shown: list[dict[str, Any]] = []
        self._ranking = Ranking("chrf")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        self.check_nan(model.hidden(**batch.inputs))
        pictures, prompts = self._task.pictures_of(batch), self._task.prompts_of(batch)
        outputs = self._task.written(model, pictures, prompts, self._tokenizer)
        for row, (about, output) in enumerate(zip(batch.texts, outputs, strict=True)):
            sample = {"source": about["question"], "output": output, "target": about["answer"]}
            with_picture = partial(self._with_picture, sample, pictures[row])
            self._shown.append(with_picture() if len(self._shown) < _KEPT else sample)
            self._ranking.add(chrf([output], [about["answer"]]).value, with_picture, len(about["answer"]))

    def compute(self) -> dict[str, MetricValue]:
        if not self._shown:
            return {}
        answers = [one for one in self._shown if one["source"]]
        captions = [one for one in self._shown if not one["source"]]
        values = {"exact": _exact(self._shown)}
        if answers and captions:
            values |= {"exact_captions": _exact(captions), "exact_answers": _exact(answers)}
        if captions:
            values["bleu"] = bleu([one["output"] for one in captions], [one["target"] for one in captions])
        return values

    def samples(self, count: int) -> list[dict[str, Any]]:
        return [one for one in self._shown if "picture" in one][:count]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def _with_picture(self, sample: dict[str, Any], pixels: Tensor) -> dict[str, Any]:
        image = png(denormalized(pixels.cpu().numpy(), self._task.mean, self._task.std))
        return {**sample, "picture": {"kind": "image", "image": image}}


def _exact(shown: list[dict[str, Any]]) -> MetricValue:
    right = sum(one["output"].strip() == one["target"].strip() for one in shown)
    return MetricValue(right / len(shown), f"of {len(shown):,}, to the letter")
