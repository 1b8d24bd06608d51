"""Pictures, sounds and series as arrays of numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.data.media.mel_spectrogram import log_mel
from qkv.runs.tasks.omni.numbers import PictureNumbers, SeriesNumbers, SoundNumbers


def test_media_become_normalized_numbers_of_the_models_size() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)
    picture = PictureNumbers(size=(8, 8), mean=(0.5,), std=(0.25,))
    np.testing.assert_allclose(picture(pixels), (pixels / 255 - 0.5) / 0.25, rtol=1e-5)
    shifted = [picture.replace({"shift": 1})(pixels, np.random.default_rng(i)) for i in range(9)]
    assert {one.shape for one in shifted} == {(1, 8, 8)} and len({one.tobytes() for one in shifted}) > 2
    wave = np.sin(np.arange(900) / 3).astype(np.float32)
    sound = SoundNumbers(size=(8, 16), rate=8000, mean=(0.0,), std=(2.0,))
    padded = np.pad(wave, ((1280 - 900) // 2, (1280 - 900) // 2))
    wanted = log_mel(torch.from_numpy(padded)[None], 8000, n_mels=8, n_fft=256, hop=80).numpy() / 2
    np.testing.assert_allclose(sound((wave, 8000)), wanted, atol=1e-6)
    assert sound((lambda: wave, 8000)).shape == (1, 8, 16) == sound((np.tile(wave, 4), 8000)).shape
    series = SeriesNumbers(size=(1, 6), mean=(1.0,), std=(2.0,))
    assert series([3.0, 1.0]).tolist() == [[[1.0, 0.0, 0.5, 0.5, 0.5, 0.5]]] and series(range(9)).shape == (1, 1, 6)
    for wrong in ([], [float("nan")], "a"):
        with pytest.raises(ValueError, match="a series is a list of numbers"):
            series(wrong)
