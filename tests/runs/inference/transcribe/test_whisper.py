"""Long sounds beside transformers' generate: languages, segments, tokens and their times, window after window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.helpers import whispering
from tests.helpers.whispering import long_form, noise

import qkv
from qkv.data.media.audio import Wave

transformers = pytest.importorskip("transformers")


def compare(pair: tuple[Any, qkv.Run], wave: Wave, condition: bool, language: str | None, num_beams: int = 1) -> None:
    theirs, run = pair
    extractor = transformers.WhisperFeatureExtractor.from_pretrained(run.path)
    inputs = extractor(
        wave, sampling_rate=16_000, return_tensors="pt", truncation=False, padding="longest", return_attention_mask=True
    )
    wanted = theirs.generate(
        inputs.input_features,
        attention_mask=inputs.attention_mask,
        return_timestamps=True,
        condition_on_prev_tokens=condition,
        language=language,
        task="transcribe",
        return_segments=True,
        do_sample=False,
        num_beams=num_beams,
    )["segments"][0]
    ours = long_form(run, condition=condition, language=language, num_beams=num_beams)
    features = ours.listening.features(wave)
    torch.testing.assert_close(features, inputs.input_features, atol=1e-5, rtol=0)
    segments = list(ours.segments(features, features.shape[-1]))
    assert [list(s.tokens) for s in segments] == [s["tokens"].tolist() for s in wanted]
    for segment, other in zip(segments, wanted, strict=True):
        assert (segment.start, segment.end) == pytest.approx((float(other["start"]), float(other["end"])))


def test_a_long_sound_is_transcribed_as_by_transformers(pair: tuple[Any, qkv.Run]) -> None:
    compare(pair, noise(2.3), True, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("language, num_beams", [(None, 1), ("de", 1), ("english", 3)])
def test_long_sounds_are_transcribed_as_by_transformers(
    seed: int, condition: bool, language: str | None, num_beams: int, tmp_path: Path
) -> None:
    theirs = whispering.save(tmp_path, seed)
    compare((theirs, qkv.load(tmp_path, device="cpu")), noise(3.4, seed), condition, language, num_beams)
