"""Arrays as PNGs in a page, as Pillow reads them."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from qkv.look.pictures.bitmap import beside, bitmap


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 3)])
def test_pixels_are_kept_and_enlarged_on_the_page(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    shown = str(bitmap(pixels, "a <title>", scale=4))
    (data,) = re.findall(r"base64,([^\"]+)", shown)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), pixels)
    assert 'width="20"' in shown and 'height="12"' in shown and "a &lt;title&gt;" in shown


def test_images_stand_beside_each_other_with_their_titles() -> None:
    shown = str(beside([("one", "AA=="), ("two", "AB==")], widest=90))
    assert shown.count("<figure") == 2 and "max-width:90px" in shown and "<figcaption>two</figcaption>" in shown
