"""Handwritten digits (UCI): 8 × 8 gray images that come with the package."""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..shuffle import Shuffle
from ..source import Split
from .images import ArrayStore, ImageSource, Store


class Digits(ImageSource, kind="digits"):
    """1,797 handwritten digits of 8 × 8 gray pixels, which come with the package: the part of "Optical Recognition of
    Handwritten Digits" (Alpaydin and Kaynak 1998, UCI Machine Learning Repository, CC BY 4.0) that scikit-learn has too.

    300 are for testing and 150 for validation, always the same ones.
    """

    def store(self, split: Split) -> Store | None:
        return _digits() if split == "train" else None


@lru_cache(maxsize=1)
def _digits() -> ArrayStore:
    table = _table()
    images = np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    order = Shuffle(len(images), seed=0)(np.arange(len(images)))
    splits: list[Split] = ["train"] * len(images)
    for i in order[:300].tolist():
        splits[i] = "test"
    for i in order[300:450].tolist():
        splits[i] = "validation"
    return ArrayStore("the handwritten digits", images, list(map(str, table[:, -1].astype(int).tolist())), splits)


def _table() -> np.ndarray:
    """A row of 64 gray values, 0 to 16, and a class for each digit."""
    content = gzip.decompress(Path(__file__).with_name("digits.bin.gz").read_bytes())
    return np.frombuffer(content, np.uint8).reshape(-1, 65)
