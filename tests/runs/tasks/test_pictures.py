"""Base classes of tasks on pictures: channels, and skipped examples in their places."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.media.png import png_bytes
from qkv.data.source import Skipped
from qkv.data.task import Item
from qkv.runs.tasks.image_classification.task import ImageClassify
from qkv.runs.tasks.pictures import PictureStack, with_channels

RED = np.stack([np.full((4, 4), 200), np.zeros((4, 4)), np.zeros((4, 4))]).astype(np.uint8)
GRAY = np.full((3, 4, 4), 90, np.uint8)


def test_gray_becomes_color_and_color_gray() -> None:
    gray = np.arange(4, dtype=np.uint8).reshape(1, 2, 2)
    assert with_channels(gray, 1) is gray
    assert with_channels(gray, 3).tolist() == [gray[0].tolist()] * 3
    red = np.zeros((3, 1, 1), np.uint8)
    red[0] = 255
    assert with_channels(red, 1).tolist() == [[[76]]]  # 0.299 · 255
    with pytest.raises(ValueError, match=r"of 3 channels is none for a model of 2; give model\.channels=3"):
        with_channels(red, 2)


def test_skipped_examples_stay_in_their_places() -> None:
    stack = PictureStack(np.zeros((2, 1, 1, 1), np.float32), [0, 2], {1: Skipped("broken")})
    items = [Item({"ids": np.array([i])}) for i in (5, 6)]
    first, skipped, last = stack.with_skipped(items)
    assert (first, skipped, last) == (items[0], "broken", items[1])


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize(("pixels", "channels", "told"), [(RED, 1, True), (RED, 3, False), (GRAY, 1, False)])
def test_colors_for_a_model_of_one_channel(pixels: np.ndarray, channels: int, told: bool, encoded: bool) -> None:
    task = ImageClassify(image=(4, 4), channels=channels, classes=("a",))
    notes = task.notes({"image": png_bytes(pixels) if encoded else pixels, "label": "a"})
    assert any("is in color, and the model has one channel" in note for note in notes) == told


def test_a_picture_of_another_size() -> None:
    (note,) = (n for n in ImageClassify(image=(2, 4), classes=("a",)).notes({"image": RED}) if "pixels" in n)
    assert note.startswith("the first picture has 4 × 4 pixels, and the model reads 2 × 4")
