"""Image operations match Pillow's, or their definitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from qkv.data.media import image_ops


def noise(n: int = 8, channels: int = 3, side: int = 12) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (n, channels, side, side), np.uint8)


PAIRS: dict[str, tuple[Callable[..., np.ndarray], Callable[[Image.Image], Image.Image], int]] = {
    "brightness": (
        lambda x: image_ops.adjust_brightness(x, np.array([1.7])),
        lambda i: ImageEnhance.Brightness(i).enhance(1.7),
        1,
    ),
    "contrast": (
        lambda x: image_ops.adjust_contrast(x, np.array([0.4])),
        lambda i: ImageEnhance.Contrast(i).enhance(0.4),
        1,
    ),
    "color": (
        lambda x: image_ops.adjust_saturation(x, np.array([1.6])),
        lambda i: ImageEnhance.Color(i).enhance(1.6),
        2,
    ),
    "sharpness": (
        lambda x: image_ops.adjust_sharpness(x, np.array([1.9])),
        lambda i: ImageEnhance.Sharpness(i).enhance(1.9),
        2,
    ),
    "autocontrast": (
        lambda x: image_ops.autocontrast(x // 2 + 9),
        lambda i: ImageOps.autocontrast(i.point(lambda v: v // 2 + 9)),
        1,
    ),
    "equalize": (lambda x: image_ops.equalize(x // 3), lambda i: ImageOps.equalize(i.point(lambda v: v // 3)), 0),
    "posterize": (lambda x: image_ops.posterize(x, np.array([3])), lambda i: ImageOps.posterize(i, 3), 0),
    "solarize": (lambda x: image_ops.solarize(x, np.array([99.0])), lambda i: ImageOps.solarize(i, 99), 0),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("channels", [1, 3])
def test_changes_are_what_pillow_does(name: str, channels: int) -> None:
    ours, theirs, within = PAIRS[name]
    for picture in noise(4, channels, 20):
        image = Image.fromarray(picture[0] if channels == 1 else np.ascontiguousarray(picture.transpose(1, 2, 0)))
        made = np.asarray(theirs(image))
        wanted = made[None] if channels == 1 else made.transpose(2, 0, 1)
        np.testing.assert_allclose(ours(picture[None])[0].astype(int), wanted.astype(int), atol=within)


def test_hue_turns_primary_colors_into_one_another() -> None:
    red = np.zeros((1, 3, 1, 1), np.uint8)
    red[0, 0] = 200
    for turn, channel in ((1 / 3, 1), (-1 / 3, 2), (1.0, 0)):
        assert image_ops.adjust_hue(red, np.array([turn]))[0, :, 0, 0].tolist() == [
            200 if c == channel else 0 for c in range(3)
        ]
    np.testing.assert_allclose(image_ops.adjust_hue(noise(), np.zeros(8)).astype(int), noise(), atol=1)


def test_right_angles_and_shifts_move_pixels_exactly() -> None:
    pixels = noise(2)
    np.testing.assert_array_equal(
        image_ops.affine(pixels, angle=np.array([90.0, 0.0]))[0], np.rot90(pixels[0], 1, (1, 2))
    )
    np.testing.assert_array_equal(image_ops.affine(pixels, angle=np.array([90.0, 0.0]))[1], pixels[1])
    right = image_ops.affine(pixels, shift_x=0.25)
    np.testing.assert_array_equal(right[..., 3:], pixels[..., :-3])
    assert (right[..., :3] == 128).all()
    down = image_ops.affine(pixels, shift_y=-0.25)
    np.testing.assert_array_equal(down[..., :-3, :], pixels[..., 3:, :])


def test_a_sheared_column_leans() -> None:
    line = np.zeros((1, 1, 11, 11), np.uint8)
    line[..., 5] = 255
    rows, columns = np.nonzero(image_ops.affine(line, shear_x=0.4)[0, 0] == 255)
    np.testing.assert_array_equal(columns, np.rint(5 - 0.4 * (rows - 5)).astype(int))
