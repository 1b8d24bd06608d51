"""`run.transcribe`: sounds in each form, and options that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.helpers.whispering import ALWAYS, noise

import qkv
from qkv.runs.inference.transcribe import Transcript


def test_a_short_sound_is_read_once_and_not_beyond_its_end(pair: tuple[Any, qkv.Run]) -> None:
    wave = noise(0.4)
    heard = pair[1].transcribe((wave, 16_000), thresholds=ALWAYS, temperatures=(0.0,))
    assert isinstance(heard, Transcript) and heard.duration == 0.4 and heard.language in ("en", "de", "ja")
    assert 0 < (heard.language_probability or 0) <= 1
    twice = pair[1].transcribe([(np.repeat(wave, 3), 48_000)] * 2, language="JAPANESE", words=True, seed=1)
    assert len(twice) == 2 and twice[0].language == "ja" and twice[0].language_probability is None


def test_one_sentence_says_what_is_wrong(pair: tuple[Any, qkv.Run]) -> None:
    run, wave = pair[1], noise(0.2)
    for options, message in (
        ({"language": "klingon"}, "no language 'klingon'; there is: de, en, ja"),
        ({"language": "germann"}, "did you mean german"),
        ({"task": "sing"}, "the task is transcribe or translate, not 'sing'"),
        ({"temperatures": ()}, "there are no temperatures"),
        ({"lanuage": "de"}, "no option 'lanuage' of transcribing; did you mean 'language'"),
        ({"num_beams": 0}, "num_beams must be a number of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            run.transcribe((wave, 16_000), **options)
    with pytest.raises(ValueError, match="needs a model of speech"):
        qkv.load("small-english", device="cpu").transcribe((wave, 16_000))
