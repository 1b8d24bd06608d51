"""Options of transcribing by name, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from qkv.runs.inference.transcribe.settings import TranscribeSettings


def test_options_are_fields() -> None:
    made = TranscribeSettings.of({"language": "de", "temperatures": (0.0, 0.5)})
    assert (made.language, made.temperatures, made.task) == ("de", (0.0, 0.5), "transcribe")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lanuage": "de"}, "did you mean 'language'"),
        ({"temperatures": ()}, "there are no temperatures"),
        ({"temperatures": (-1.0,)}, "temperature"),
        ({"num_beams": 0}, "num_beams"),
        ({"lm_weight": -0.5}, "lm_weight"),
    ],
)
def test_bad_options_are_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TranscribeSettings.of(options)
