"""Transcription with runs of speech recognition that qkv trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_recipes import prepared

from qkv.runs.inference.run import Run
from qkv.runs.inference.transcribe import Thresholds

SOUND = (0.1 * np.random.default_rng(0).normal(size=8000).astype(np.float32), 8000)


def untrained(kind: str) -> Run:
    small = prepared(kind)
    return Run(small.model, small.tokenizer, recipe=small.recipe)


@pytest.mark.parametrize(
    "options",
    [
        {"language": "de"},
        {"task": "translate"},
        {"timestamps": False},
        {"condition": False, "seed": 3},
        {"temperatures": (0.0,)},
        {"thresholds": Thresholds(None)},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_that_only_whisper_has_are_refused(options: dict[str, Any]) -> None:
    names = " and ".join(options)
    with pytest.raises(
        ValueError, match=f"of the task 'recognize-ctc', has no use for {names}, which Whisper has; leave"
    ):
        untrained("recognize-ctc").transcribe(SOUND, **options)


def test_a_weight_without_a_language_model_is_refused() -> None:
    with pytest.raises(ValueError, match="lm_weight and word_bonus weigh a language model, and there is none; add lm"):
        untrained("recognize-ctc").transcribe(SOUND, lm_weight=1.0, word_bonus=2.0)
