"""Sizes that pictures are resized to and cropped, as transformers computes them, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.io.directories.preprocessor import Within, _read, _size_of

CONFIG = {"size": {"height": 4, "width": 6}, "image_mean": [0.5], "image_std": [0.25]}


@pytest.mark.parametrize("shape", [(480, 640), (640, 480), (500, 500), (300, 1400), (1333, 799), (37, 91)])
def test_a_size_within_bounds_is_that_of_transformers(shape: tuple[int, int]) -> None:
    yolos = pytest.importorskip("transformers.models.yolos.image_processing_pil_yolos")
    theirs = yolos.get_size_with_aspect_ratio_yolos
    assert Within(512, 1333).of(shape) == theirs(shape, 512, 1333)


def test_sides_within_bounds_are_multiples_of_16() -> None:
    """480 × 640 to a shorter side of 512: 682.67 is cut to 682, and both are rounded down to multiples of 16."""
    assert Within(512, 1333).of((480, 640)) == (512, 672) and Within(512, 1333).of((640, 480)) == (672, 512)
    assert Within(512, 600).of((480, 640)) == (448, 592)  # the longer side decides: 450 × 600
    assert Within(100, 1000).of((50, 50)) == (96, 96)


@pytest.mark.parametrize(
    ("shape", "size"), [((10, 15), (4, 6)), ((15, 10), (6, 4)), ((10, 10), (4, 4)), ((7, 10), (4, 5))]
)
def test_a_shorter_side_keeps_the_aspect_ratio(shape: tuple[int, int], size: tuple[int, int]) -> None:
    assert _size_of(shape, 4) == size and _size_of(shape, (8, 9)) == (8, 9)


def test_pictures_are_cropped_in_the_middle_and_normalized() -> None:
    """A column of 0 … 5 in a row of 4: (x / 255 − 0.5) / 0.25."""
    made = _read({**CONFIG, "do_center_crop": True, "crop_size": {"height": 2, "width": 2}, "resample": 0}, 1)
    pixels = (np.arange(6, dtype=np.uint8) * 51)[None, None].repeat(4, 1)
    np.testing.assert_allclose(made.numbers(pixels)[0], [[-0.4, 0.4]] * 2, atol=1e-6)
    assert made.color == "gray" and made.filter == "nearest"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"do_resize": False}, "do_resize is false"),
        ({"rescale_factor": 1.0}, "rescale_factor is 1.0, and what is built is 1/255"),
        ({"resample": 1}, "resample is 1, and what is built is 0 .nearest., 2 .bilinear., 3 .bicubic."),
        ({"image_mean": [0.5] * 3}, "have 3 and 1 channels, and the model reads 1"),
        ({"size": {"shortest_edge": 4}}, "it says one side alone"),
        ({"do_center_crop": True, "crop_size": 5}, "crop_size is .5, 5., more than the size .4, 6."),
    ],
)
def test_what_is_not_built_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _read({**CONFIG, **changes}, 1)


def test_older_files_give_bare_numbers() -> None:
    assert _read({**CONFIG, "size": 8}, 1).size == (8, 8)
    assert _read({**CONFIG, "size": 512, "max_size": 1333}, 1).size == Within(512, 1333)
    plain = _read({"size": 8, "do_normalize": False}, 3)
    assert plain.mean == (0.0,) * 3 and plain.std == (1.0,) * 3 and plain.color == "rgb"
