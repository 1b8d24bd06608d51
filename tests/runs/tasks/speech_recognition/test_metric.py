"""Error rates of recognized speech: words and characters over all texts, after the task's normalization."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.speech_recognition.ctc import RecognizeCTC
from qkv.runs.tasks.speech_recognition.metric import SpeechMetric


def test_spellings_of_a_file_are_replaced_in_outputs_and_texts(tmp_path: Path) -> None:
    (tmp_path / "normalizer.json").write_text('{"colour": "color"}')
    batch = Batch({"ids": torch.zeros(1, 8, 5)}, None, texts=({"text": "Two colours, one colour."},))
    for spellings, wer in ((None, 1 / 4), (str(tmp_path / "normalizer.json"), 0.0)):
        task: Any = SimpleNamespace(normalize="english", spellings=spellings)
        words: Any = None
        metric = SpeechMetric(task, words)
        metric.take(["2 colours one color"], batch)
        assert metric.compute()["wer"].value == pytest.approx(wer)
    assert metric.compute()["wer"].details.endswith("normalized:english+spellings")
    with pytest.raises(ValueError, match="normalize=english, and normalize is basic"):
        RecognizeCTC(normalize="basic", spellings="normalizer.json")
    (tmp_path / "normalizer.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"normalizer\.json: it should be an object, not"):
        SpeechMetric(task, words)
    (tmp_path / "normalizer.json").unlink()
    with pytest.raises(ValueError, match="there is no file of spellings"):
        SpeechMetric(task, words)


def test_errors_are_counted_over_all_texts() -> None:
    texts, outputs = ["one two", "three"], ["one too", "Three!"]
    batch = Batch({"ids": torch.zeros(2, 8, 5)}, None, texts=tuple({"text": text} for text in texts))
    for how, wer, cer, exact in (("none", 2 / 3, 3 / 12, 0.0), ("basic", 1 / 3, 1 / 12, 0.5)):
        task: Any = SimpleNamespace(normalize=how, spellings=None)
        words: Any = None
        metric = SpeechMetric(task, words)
        assert metric.compute() == {}
        metric.take(outputs, batch)
        found = metric.compute()
        assert found["wer"].value == pytest.approx(wer) and found["cer"].value == pytest.approx(cer)
        assert found["exact"].value == exact and (f"normalized:{how}" in found["wer"].details) == (how != "none")
        first, _ = metric.samples(2)
        assert first["output"] == "one too" and first["picture"]["kind"] == "spectrogram"
