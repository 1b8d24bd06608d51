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
