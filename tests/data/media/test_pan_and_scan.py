"""Pan and scan: pieces by hand, and beside transformers' processor of Gemma 3."""

from __future__ import annotations

import random

import numpy as np
import pytest

from qkv.data.media.pan_and_scan import PanAndScan


def pixels_of(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (3, height, width), np.uint8)


def test_a_long_picture_is_cut_along_its_longer_side() -> None:
    """30 pixels in pieces of 10 × 10, from left to right, and 8 × 20 in two from top to bottom."""
    wide, tall = pixels_of(10, 30), pixels_of(20, 8)
    scan = PanAndScan(smallest=8, most=4)
    assert [np.array_equal(a, b) for a, b in zip(scan.pieces(wide), np.split(wide, 3, 2), strict=True)] == [True] * 3
    assert [np.array_equal(a, b) for a, b in zip(scan.pieces(tall), np.split(tall, 2, 1), strict=True)] == [True] * 2
    assert PanAndScan(smallest=8, ratio=2.6).pieces(tall) == []  # not long enough
    assert PanAndScan(smallest=9).pieces(tall) == []  # the pieces would be too small


def test_settings_are_those_of_a_file() -> None:
    assert PanAndScan.of({}) is None and PanAndScan.of({"do_pan_and_scan": None}) is None
    assert PanAndScan.of({"do_pan_and_scan": True, "pan_and_scan_min_crop_size": None}) == PanAndScan()
    said = {"do_pan_and_scan": True, "pan_and_scan_min_ratio_to_activate": 1.5, "pan_and_scan_max_num_crops": 3}
    assert PanAndScan.of(said) == PanAndScan(most=3, ratio=1.5)
    with pytest.raises(ValueError, match="pan_and_scan_min_crop_size must be a number of at least 1, not 'a'"):
        PanAndScan.of({"do_pan_and_scan": True, "pan_and_scan_min_crop_size": "a"})


def test_pieces_are_those_of_transformers() -> None:
    from transformers import Gemma3ImageProcessorPil

    theirs, draw = Gemma3ImageProcessorPil(), random.Random(0)
    for _ in range(300):
        pixels = pixels_of(draw.randint(1, 60), draw.randint(1, 60))
        scan = PanAndScan(draw.randint(1, 20), draw.randint(1, 6), draw.choice((1.0, 1.2, 2.0)))
        wanted = [one for one in theirs.pan_and_scan(pixels, scan.smallest, scan.most, scan.ratio) if one.size]
        found = scan.pieces(pixels)
        assert len(found) == len(wanted) and all(map(np.array_equal, found, wanted)), (pixels.shape, scan)
