"""Word and character error rate of recognized speech, with spectrograms of samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from ....core.batch import Batch
from ....core.metrics.base import MeasuredModel, Metric, MetricValue, model_outputs
from ....core.metrics.display import register
from ....core.metrics.extremes import Extremes, Ranking
from ....core.metrics.normalizer import Normalizer, normalizer, read_spellings
from ....core.metrics.text import character_error_rate, exact_match, word_error_rate
from ....data.tokenizers.protocol import TextDecoder
from ..samples import evenly
from ..sound_classification import metric as _spectrograms  # noqa: F401  # registers the picture

register("exact", "Exact match", "fraction", higher_is_better=True)

_KEPT = 64  # sounds from which samples are chosen


class Recognizer(Protocol):
    """A task that gives texts for a model's outputs."""

    @property
    def normalize(self) -> Normalizer: ...

    @property
    def spellings(self) -> str | None: ...

    def texts_of(self, model: MeasuredModel, outputs: Tensor, batch: Batch, tokenizer: TextDecoder) -> list[str]: ...


class SpeechMetric(Metric):
    """wer: word error rate; cer: character error rate; exact: the share of texts without an error. Outputs and texts are
    normalized first, as the task says."""

    def __init__(self, task: Recognizer, tokenizer: TextDecoder) -> None:
        self._task, self._tokenizer = task, tokenizer
        spellings = None if task.spellings is None else read_spellings(task.spellings)
        self._normalized = normalizer(task.normalize, spellings)
        self._outputs: list[str] = []
        self._texts: list[str] = []
        self._shown: list[dict[str, Any]] = []
        self._ranking = Ranking("cer")

    def evaluate(self, model: MeasuredModel, batch: Batch) -> None:
        outputs = model_outputs(model, batch)
        self.check_nan(outputs)
        self.take(self._task.texts_of(model, outputs, batch, self._tokenizer), batch)

    def take(self, outputs: Sequence[str], batch: Batch) -> None:
        """Add the recognized texts of a batch."""
        for row, (about, output) in enumerate(zip(batch.texts, outputs, strict=True)):
            text, said = self._normalized(about["text"]), self._normalized(output)
            sample = {"source": about.get("where", ""), "output": output, "target": about["text"]}
            picture = partial(self._with_picture, sample, batch.inputs["ids"][row])
            if len(self._shown) < _KEPT:
                self._shown.append(picture())
            self._ranking.add(character_error_rate([said], [text]).value, picture, len(text))
            self._outputs.append(said)
            self._texts.append(text)

    def compute(self) -> dict[str, MetricValue]:
        if not self._outputs:
            return {}
        values = {
            "wer": word_error_rate(self._outputs, self._texts),
            "cer": character_error_rate(self._outputs, self._texts),
            "exact": exact_match(self._outputs, self._texts),
        }
        if self._task.normalize == "none":
            return values
        spelled = "" if self._task.spellings is None else "+spellings"
        how = f"|normalized:{self._task.normalize}{spelled}"
        return {name: value._replace(details=value.details + how) for name, value in values.items()}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return evenly(self._shown, count)

    def extremes(self) -> Extremes | None:
        return self._ranking.extremes()

    def _with_picture(self, sample: dict[str, Any], features: Tensor) -> dict[str, Any]:
        if features.shape[0] == 2:  # a waveform
            return sample
        values = np.round(features.float().cpu().numpy(), 2).tolist()
        return {**sample, "picture": {"kind": "spectrogram", "values": values}}
