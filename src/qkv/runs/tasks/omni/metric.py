"""Exact match of answers, which the model generates greedily, by what their questions have between the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, Protocol, cast

import numpy as np
from markupsafe import Markup

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.text import chrf
from ....data.tokenizers.protocol import Encoder, TextDecoder
from ....look.chart import Series, line_chart
from ....look.pictures import draw, draws
from ....look.svg import tag
from ....nn.models.joint import MediaInputs
from ..sound_classification.metric import spectrogram
from .numbers import MediaNumbers

PARTS = ("text", "image", "sound", "series", "several")
"""What a question has beside words: nothing, one kind of media, or several media."""

register("exact", "Exact match", "fraction", higher_is_better=True)
for _part in PARTS:
    register(f"exact_{_part}", scale="fraction", higher_is_better=True, part=True)

_KEPT = 12  # questions of each part kept to be shown


class Answerer(Protocol):
    """What the metric needs of its task."""

    @property
    def media(self) -> tuple[str, ...]: ...
    def prompts_of(self, batch: Batch) -> list[list[int]]: ...
    def written(
        self, model: MeasuredModel, media: MediaInputs | None, prompts: Sequence[list[int]], tokenizer: TextDecoder
    ) -> list[str]: ...


class OmniMetric(Metric):
    """exact: the share of answers that equal the truth; exact_text, exact_image, exact_sound and exact_series: of questions
    with nothing or with one medium beside words; exact_several: of questions with several media.

    `task` writes the answers.
    """

    def __init__(self, tokenizer: Encoder | None, task: Answerer) -> None:
        assert tokenizer is not None and tokenizer.eos_id is not None
        self._tokenizer, self._task = cast(Any, tokenizer), task
        self._right: dict[str, list[bool]] = {}
        self._shown: dict[str, list[dict[str, Any]]] = {name: [] for name in PARTS}
        self._ranking = Ranking("chrf")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        self.check_nan(model.hidden(**batch.inputs))
        media, prompts = batch.inputs.get("media"), self._task.prompts_of(batch)
        for about, output in zip(batch.texts, self._task.written(model, media, prompts, self._tokenizer), strict=True):
            sample = {"source": about["question"], "output": output, "target": about["answer"]}
            part = _part_of(about)
            self._right.setdefault(part, []).append(output.strip() == about["answer"].strip())
            shown = partial(self._with_pictures, sample, about["files"])
            if len(self._shown[part]) < _KEPT:
                self._shown[part].append(shown())
            self._ranking.add(chrf([output], [about["answer"]]).value, shown, len(about["answer"]))

    def compute(self) -> dict[str, MetricValue]:
        if not self._right:
            return {}
        parts = {name: self._right[name] for name in PARTS if name in self._right}
        values = {"exact": _share([one for right in parts.values() for one in right])}
        return values | ({f"exact_{name}": _share(right) for name, right in parts.items()} if len(parts) > 1 else {})

    def samples(self, count: int) -> list[dict[str, Any]]:
        """Questions of every part in turn, those with several media first."""
        turns = zip_longest(*(self._shown[name] for name in reversed(PARTS)))
        return [one for turn in turns for one in turn if one is not None][:count]

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def _with_pictures(self, sample: dict[str, Any], files: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        makers: dict[str, MediaNumbers] = {name: getattr(self._task, name) for name in self._task.media}
        shown = [makers[name].shown(makers[name](one), one) for name in self._task.media for one in files.get(name, ())]
        return {**sample, "picture": {"kind": "media", "pictures": shown}} if shown else sample


def _part_of(about: Mapping[str, Any]) -> str:
    count = sum(len(files) for files in about["files"].values())
    return "text" if not count else about["kinds"][0] if count == 1 else "several"


def _share(right: Sequence[bool]) -> MetricValue:
    return MetricValue(sum(right) / len(right), f"of {len(right):,}, to the letter")


# -- pictures of samples -------------------------------------------------------------------------------------------------


@draws("media")
def media(picture: Mapping[str, Any]) -> Markup:
    """Show all media of a question side by side."""
    return tag("div", *map(draw, picture["pictures"]), style="display:flex;flex-wrap:wrap;gap:12px;align-items:end")


@draws("sound")
def sound(picture: Mapping[str, Any]) -> Markup:
    """Show the spectrogram of a sound, and play it."""
    source = f"data:audio/wav;base64,{picture['sound']}"
    heard = tag("audio", controls="controls", src=source, style="display:block;width:220px;height:32px")
    return tag("div", spectrogram(picture), heard)


@draws("series")
def series(picture: Mapping[str, Any]) -> Markup:
    """Draw a series as a line."""
    values = np.asarray(picture["values"], np.float64)
    points = tuple((float(i), float(value)) for i, value in enumerate(values))
    return line_chart("series", [Series("series", points)], width=440, height=170, x_label="")
