"""Squares of pictures: sizes by hand, and numbers beside transformers' processors of Idefics 3 and SmolVLM."""

from __future__ import annotations

import random

import numpy as np
import pytest
from PIL import Image

from qkv.data.media.square_pictures import SquarePictures

HALF = (0.5, 0.5, 0.5)


def test_a_picture_is_cut_into_whole_squares_and_seen_whole() -> None:
    """20 × 40 pixels are drawn to 10 × 20, then to 12 × 24 whole squares of 6: two rows of four, and the whole picture."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 20, 40), np.uint8)
    made = SquarePictures(20, 6, HALF, HALF).squares(pixels)
    assert (made.rows, made.columns) == (2, 4) and made.numbers.shape == (9, 3, 6, 6)
    whole = SquarePictures(20, 6, HALF, HALF, tiles=False).squares(pixels)
    assert (whole.rows, whole.columns) == (0, 0) and whole.numbers.shape == (1, 3, 6, 6)
    assert len(SquarePictures(6, 6, HALF, HALF).squares(pixels).numbers) == 1  # one square, so there are no tiles


def test_a_line_of_pixels_is_a_row_of_squares() -> None:
    made = SquarePictures(1456, 364, HALF, HALF).squares(np.full((3, 1, 5000), 9, np.uint8))
    assert (made.rows, made.columns) == (1, 4) and made.numbers.shape == (5, 3, 364, 364)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Idefics3", "SmolVLM"])
@pytest.mark.parametrize("seed", range(12))
def test_numbers_are_those_of_transformers_to_the_last_bit(kind: str, seed: int) -> None:
    import transformers

    draw = random.Random(seed)
    side, splits = draw.choice((6, 11, 16)), seed % 4 > 0
    settings = {"size": {"longest_edge": draw.choice((5, 16, 37, 64))}, "max_image_size": {"longest_edge": side}}
    settings |= {"do_image_splitting": splits, "resample": seed % 6, "rescale_factor": draw.choice((1 / 255, 1 / 100))}
    settings |= {key: [draw.uniform(0.1, 0.9) for _ in range(3)] for key in ("image_mean", "image_std")}
    theirs = getattr(transformers, f"{kind}ImageProcessorPil")(**settings)
    ours = SquarePictures.of(theirs.to_dict(), 3)
    assert ours is not None
    for shape in ((20, 31), (40, 9), (1, 90), (16, 16), (33, 2)):
        pixels = np.random.default_rng(seed).integers(0, 256, (*shape, 3), np.uint8)
        expected = theirs([[Image.fromarray(pixels)]], return_tensors="np", return_row_col_info=True)
        found = ours.squares(pixels.transpose(2, 0, 1))
        assert np.array_equal(found.numbers, expected["pixel_values"][0]), shape
        assert [found.rows, found.columns] == [expected["rows"][0][0], expected["cols"][0][0]]


@pytest.mark.slow
def test_smolvlm_has_the_same_places_as_idefics3() -> None:
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    from qkv.runs.inference.reading.processors import squares_in_words

    for rows, columns in ((0, 0), (1, 1), (2, 3), (4, 1)):
        wanted = get_image_prompt_string(rows, columns, 5, "<fake_token_around_image>", "<image>", "<global-img>")
        assert squares_in_words(rows, columns, "<image>" * 5) == wanted
