"""Exact match and BLEU of captions and answers, which the model generates greedily."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from ....core.batch import IGNORE, Batch
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


class CaptionMetric(Metric):
    """exact: the share of outputs that equal the truth, also for captions and answers apart if there are both;
    bleu: of the captions (Papineni et al. 2002), by sacreBLEU.

    `longest` is the most tokens of a prompt and its output.
    """

    def __init__(
        self, tokenizer: Encoder | None, longest: int, mean: tuple[float, ...], std: tuple[float, ...]
    ) -> None:
        assert tokenizer is not None and tokenizer.eos_id is not None
        self._tokenizer, self._longest, self._scale = cast(Any, tokenizer), longest, (mean, std)
        self._shown: list[dict[str, Any]] = []
        self._ranking = Ranking("chrf")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        self.check_nan(model.hidden(**batch.inputs))
        outputs = written(model, batch.inputs["ids"], _prompts(batch), self._tokenizer, self._longest)
        for row, (about, output) in enumerate(zip(batch.texts, outputs, strict=True)):
            sample = {"source": about["question"], "output": output, "target": about["answer"]}
            with_picture = partial(self._with_picture, sample, batch.inputs["ids"][row])
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
        image = png(denormalized(pixels.cpu().numpy(), *self._scale))
        return {**sample, "picture": {"kind": "image", "image": image}}


def written(
    model: MeasuredModel, pictures: Tensor, prompts: Sequence[list[int]], tokenizer: TextDecoder, longest: int
) -> list[str]:
    """Generate a text for each picture (C, H, W) and prompt, greedily: at most `longest` tokens with the prompt, whatever
    the length of the other prompts."""
    width, end = max(map(len, prompts)), tokenizer.eos_id
    limits = [max(longest - len(prompt), 1) for prompt in prompts]
    ids = model.generate(pictures, target=prompts, eos_id=end, pad_id=end, max_new_tokens=max(limits))
    rows = (row[:n] for row, n in zip(ids[:, width:].tolist(), limits, strict=True))
    return [tokenizer.decode(row[: row.index(end)] if end in row else row) for row in rows]


def _prompts(batch: Batch) -> list[list[int]]:
    """The decoder's tokens of each row before the first label."""
    assert batch.labels is not None
    first = (batch.labels != IGNORE).to(torch.int8).argmax(1).tolist()
    return [row[: n + 1] for row, n in zip(batch.inputs["target"].tolist(), first, strict=True)]


def _exact(shown: list[dict[str, Any]]) -> MetricValue:
    right = sum(one["output"].strip() == one["target"].strip() for one in shown)
    return MetricValue(right / len(shown), f"of {len(shown):,}, to the letter")
