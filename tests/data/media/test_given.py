from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qkv.data.media import audio, given


def test_a_picture_is_the_same_in_every_form(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)
    made, path = Image.fromarray(pixels), tmp_path / "a.png"
    made.save(path)
    address = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    wanted = pixels.transpose(2, 0, 1)
    for form in (path, str(path), path.read_bytes(), address, made, pixels, wanted, torch.from_numpy(wanted.copy())):
        np.testing.assert_array_equal(given.picture(form), wanted)
    assert given.picture(pixels[..., 0]).shape == (1, 5, 4) and given.picture(path, "gray").shape == (1, 5, 4)


def test_a_sound_is_the_same_in_every_form(tmp_path: Path) -> None:
    wave = np.sin(np.arange(400) / 9).astype(np.float32)
    data = audio.encode(wave, 8000)
    (tmp_path / "a.wav").write_bytes(data)
    address = "data:audio/wav;base64," + base64.b64encode(data).decode()
    for form in (tmp_path / "a.wav", data, address, (wave, 8000)):
        found, rate = given.sound(form)
        assert rate == 8000 and np.abs(found - wave).max() < 1e-4


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere.png", "there is no file 'nowhere.png'"),
        (b"no picture", "the picture can't be read: it is"),
        ("data:image/png,abc", "only data:…;base64,… is read"),
        ("data:image/png;base64,!!", "is not base64"),
        (np.zeros((4, 4, 3)), "an array of bytes .* not an array of float64"),
        (3, "a picture is a file, .* not 3, an int"),
    ],
)
def test_what_is_no_picture_is_one_sentence(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        given.picture(value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros(4, np.float32), "a pair of a waveform and its rate"),
        ((np.zeros(4, np.int16), 8000), "floating-point samples"),
        ((np.zeros(0, np.float32), 8000), "without sound"),
        ((np.full(3, np.nan, np.float32), 8000), "3 samples that are no numbers"),
        ((np.zeros(4, np.float32), 0), "whole number of samples per second"),
        (b"no sound", "can't be read as a sound"),
    ],
)
def test_what_is_no_sound_is_one_sentence(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        given.sound(value)
