"""PNG files of images and of class masks."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from qkv.data.media.png import class_color, class_png_bytes, laid_over, png, png_bytes


@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_is_read_back(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 5, 7), np.uint8)
    image = np.asarray(Image.open(io.BytesIO(png_bytes(pixels))))
    np.testing.assert_array_equal(image, pixels[0] if channels == 1 else pixels.transpose(1, 2, 0))
    assert base64.b64decode(png(pixels)) == png_bytes(pixels)


def test_a_mask_has_its_classes_as_values_and_as_colors() -> None:
    classes = np.array([[0, 1, 9], [-100, 2, 0]])
    image = Image.open(io.BytesIO(class_png_bytes(classes)))
    assert np.asarray(image).tolist() == [[0, 1, 9], [255, 2, 0]]
    colors = np.asarray(image.convert("RGB"))
    assert tuple(colors[0, 2]) == class_color(9) and tuple(colors[1, 0]) == (255, 255, 255)
    assert len({class_color(k) for k in range(40)}) == 40


def test_an_overlay_is_half_gray_and_half_color() -> None:
    overlay = laid_over(np.full((3, 1, 2), 100, np.uint8), np.array([[0, 1]]))
    assert overlay.shape == (3, 1, 2)
    assert overlay[:, 0, 1].tolist() == [(100 + part) // 2 for part in class_color(1)]
