"""Error rates of recognized speech: words and characters over all texts, after the task's normalization."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.speech_recognition.metric import SpeechMetric


def test_errors_are_counted_over_all_texts() -> None:
    texts, outputs = ["one two", "three"], ["one too", "Three!"]
    batch = Batch({"ids": torch.zeros(2, 8, 5)}, None, texts=tuple({"text": text} for text in texts))
    for how, wer, cer, exact in (("none", 2 / 3, 3 / 12, 0.0), ("basic", 1 / 3, 1 / 12, 0.5)):
        task: Any = SimpleNamespace(normalize=how)
        words: Any = None
        metric = SpeechMetric(task, words)
        assert metric.compute() == {}
        metric.take(outputs, batch)
        found = metric.compute()
        assert found["wer"].value == pytest.approx(wer) and found["cer"].value == pytest.approx(cer)
        assert found["exact"].value == exact and (f"normalized:{how}" in found["wer"].details) == (how != "none")
        first, _ = metric.samples(2)
        assert first["output"] == "one too" and first["picture"]["kind"] == "spectrogram"
