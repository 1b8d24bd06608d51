"""Log-mel spectrograms equal those of transformers, in both scales."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from qkv.data.media.mel_spectrogram import compressed, log_mel, mel_filters

TONE = (0.5 * np.sin(2 * np.pi * 440 * np.arange(800) / 8000)).astype(np.float32)


def test_filters_and_spectrogram_match_transformers() -> None:
    audio = pytest.importorskip("transformers.audio_utils")
    filters = audio.mel_filter_bank(
        num_frequency_bins=257, num_mel_filters=40, min_frequency=0, max_frequency=4000, sampling_rate=8000
    )
    np.testing.assert_allclose(mel_filters(40, 512, 8000).T, filters, atol=1e-6)
    random = np.random.default_rng(0).normal(0, 0.1, 4000).astype(np.float32)
    window = audio.window_function(512, "hann")
    theirs = audio.spectrogram(
        random, window, 512, 160, power=2.0, mel_filters=filters, log_mel="log10", mel_floor=1e-10
    )
    ours = log_mel(torch.from_numpy(random)[None], 8000, n_mels=40, n_fft=512, hop=160)[0]
    assert ours.shape == (40, 25)
    np.testing.assert_allclose(ours, theirs[:, :25], atol=2e-4)


def test_a_tone_is_in_its_band() -> None:
    loud = torch.from_numpy(np.tile(TONE, 4))[None]
    band = int(log_mel(loud, 8000, n_mels=32)[0].mean(1).argmax())
    corners = 700 * (10 ** (np.linspace(0, 2595 * math.log10(1 + 4000 / 700), 34) / 2595) - 1)
    assert corners[band] < 440 < corners[band + 2]


def test_too_short_a_sound_says_so() -> None:
    with pytest.raises(ValueError, match="100 samples is too short for frames of 512"):
        log_mel(torch.zeros(1, 100), 8000)


@pytest.mark.parametrize("mels", [80, 128])
def test_features_match_transformers_whisper(mels: int) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.WhisperFeatureExtractor(feature_size=mels, chunk_length=2)
    np.testing.assert_allclose(theirs.mel_filters.T, mel_filters(mels, 400, 16_000, "slaney"), atol=1e-8)
    noise = np.random.default_rng(0).normal(0, 0.1, 21_000).astype(np.float32)
    noise[4000:9000] = 0
    whole = np.pad(noise, (0, 32_000 - len(noise)))
    ours = compressed(log_mel(torch.from_numpy(whole)[None], 16_000, n_mels=mels, n_fft=400, hop=160, scale="slaney"))
    wanted = theirs(noise, sampling_rate=16_000, return_tensors="np").input_features
    np.testing.assert_allclose(ours, wanted, atol=1e-5)
    exact = theirs._np_extract_fbank_features(whole[None].astype(np.float64), "cpu")
    np.testing.assert_allclose(ours, exact, atol=1e-5)
