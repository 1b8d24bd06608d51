"""Spectrograms of samples: time to the right, pitch upward, louder is brighter."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

from qkv.runs.tasks.sound_classification.metric import spectrogram


def test_louder_is_brighter_and_low_bands_are_below() -> None:
    values = np.zeros((4, 6))
    values[0, 5] = 10.0  # the lowest band, last
    shown = str(spectrogram({"values": values.tolist()}))
    (data,) = re.findall(r"base64,([^\"]+)", shown)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))).astype(int)
    assert pixels.shape == (4, 6, 3)
    brightest = np.unravel_index(pixels.sum(-1).argmax(), (4, 6))
    assert brightest == (3, 5) and pixels[3, 5].tolist() == [240, 249, 33] and pixels[0, 0].tolist() == [13, 8, 135]
