"""Boxes and masks turn as `ImageOps.exif_transpose` of Pillow turns pictures."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from qkv.data.media.exif import orientation, turned_boxes, turned_mask, turns_annotations
from qkv.data.media.images import decode

ALL = range(1, 9)
BOX = (2, 1, 5, 3)  # left, top, right and bottom in a picture of 8 × 6


def turned_file(number: int, format: str = "PNG") -> bytes:
    """A black picture, 8 wide and 6 high, with a white box, and an orientation."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    tags = Image.Exif()
    tags[0x0112] = number
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **({"tiffinfo": {274: number}} if format == "TIFF" else {"exif": tags}))
    return file.getvalue()


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("number", ALL)
def test_the_orientation_of_a_file_is_read(number: int, format: str) -> None:
    assert orientation(turned_file(number, format)) == number


def test_what_is_no_orientation_is_upright() -> None:
    assert {orientation(data) for data in (b"", b"no picture", turned_file(9), turned_file(0))} == {1}


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
@pytest.mark.parametrize("number", ALL)
def test_a_box_is_where_its_object_is(number: int, format: str) -> None:
    pixels = decode(turned_file(number, format), "gray")
    assert not isinstance(pixels, str)
    ((left, top, right, bottom),) = turned_boxes(np.array([BOX]), number, pixels.shape[1:]).astype(int)
    assert pixels[0, top:bottom, left:right].min() == 255 and (pixels == 255).sum() == (bottom - top) * (right - left)


@pytest.mark.parametrize("number", ALL)
def test_a_mask_turns_as_pillow_turns_it(number: int) -> None:
    image = Image.open(io.BytesIO(turned_file(number))).convert("L")
    mask = np.arange(48, dtype=np.uint8).reshape(6, 8)
    numbered = Image.fromarray(mask)
    numbered.info["exif"] = image.info["exif"]
    np.testing.assert_array_equal(turned_mask(mask, number), np.asarray(ImageOps.exif_transpose(numbered)))


SHOWN = (8, 6)  # height and width of a picture of 6 × 8 that is turned by a right angle


@pytest.mark.parametrize(
    "annotated, drawn_on, turns",
    [
        ((6, 8), None, True),
        ((8, 6), None, False),
        (None, "stored", True),
        (None, "shown", False),
        ((6, 8), "shown", False),
        ((8, 6), "stored", True),
    ],
)
def test_the_stated_size_or_the_user_says_what_annotations_were_drawn_on(
    annotated: tuple[int, int] | None, drawn_on: str | None, turns: bool
) -> None:
    assert turns_annotations(6, SHOWN, annotated, drawn_on, "a.jpg") is turns
    assert turns_annotations(1, SHOWN, SHOWN, drawn_on, "a.jpg") is False


@pytest.mark.parametrize("number, annotated", [(6, None), (3, (8, 6)), (2, None)])
def test_annotations_that_say_nothing_turn_with_a_warning(number: int, annotated: tuple[int, int] | None) -> None:
    with pytest.warns(UserWarning, match=rf"{number}/{number}\.jpg is turned .*data\.drawn_on=shown"):
        assert turns_annotations(number, SHOWN, annotated, None, f"{number}/{number}.jpg")


def test_annotations_of_another_size_are_told() -> None:
    with pytest.raises(
        ValueError, match=r"^a\.jpg: its annotations are of a picture of 12 × 16 pixels .* has 8 × 6; give"
    ):
        turns_annotations(6, SHOWN, (16, 12), None, "a.jpg")
