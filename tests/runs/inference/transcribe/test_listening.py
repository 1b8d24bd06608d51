"""How sounds are read, by a directory's preprocessor_config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.nn.layers.frames import Frames
from qkv.runs.inference.transcribe.listening import Listening

FRAMES = Frames(mels=12, frames=100)


@pytest.mark.parametrize("seconds", [0.001, 0.7, 1.0, 2.3])
def test_features_are_those_of_the_file(seconds: float, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.WhisperFeatureExtractor(
        feature_size=12, sampling_rate=8000, hop_length=80, n_fft=200, chunk_length=1
    )
    theirs.mel_filters = transformers.audio_utils.mel_filter_bank(101, 12, 0.0, 4000.0, 8000, "slaney", "slaney")
    theirs.save_pretrained(tmp_path)
    listening = Listening.of(tmp_path, FRAMES)
    assert listening == Listening(12, 8000, 200, 80, 100, 2) and listening.step == 0.02
    wave = np.random.default_rng(0).normal(0, 0.1, int(8000 * seconds)).astype(np.float32)
    padding = "max_length" if seconds <= 1 else "longest"
    wanted = theirs(wave, sampling_rate=8000, return_tensors="np", truncation=False, padding=padding).input_features
    np.testing.assert_allclose(listening.features(wave), wanted, atol=1e-5)


def test_written_and_read(tmp_path: Path) -> None:
    listening = Listening(12, 8000, 256, 80, 100, 2)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(listening.to_json()))
    assert Listening.of(tmp_path, FRAMES) == listening
    transformers = pytest.importorskip("transformers")
    theirs = transformers.WhisperFeatureExtractor.from_pretrained(tmp_path)
    assert (theirs.feature_size, theirs.sampling_rate, theirs.n_fft, theirs.nb_max_frames) == (12, 8000, 256, 100)


def test_without_a_file_they_are_whispers(tmp_path: Path) -> None:
    assert Listening.of(tmp_path, FRAMES) == Listening.of(None, FRAMES) == Listening(12, window=100)
    nested = {"feature_extractor": {"feature_size": 12, "hop_length": 200}}
    (tmp_path / "processor_config.json").write_text(json.dumps(nested))
    assert Listening.of(tmp_path, FRAMES).hop == 200


@pytest.mark.parametrize(
    "said, message",
    [
        ({"feature_extractor_type": "ASTFeatureExtractor"}, "'ASTFeatureExtractor' is not built here"),
        ({"feature_size": 80}, "feature_size is 80, and the model reads 12 mel bands"),
        ({"hop_length": 0}, "hop_length is a whole number of at least 1, not 0"),
        ({"n_fft": "400"}, "n_fft is a whole number of at least 1, not '400'"),
        ({"dither": 0.1}, "do_normalize and dither are not built here"),
        ([], "is not a JSON object of settings"),
    ],
)
def test_other_files_are_refused(said: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match=message):
        Listening.of(tmp_path, FRAMES)
