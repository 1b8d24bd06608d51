"""Handwritten digits from scikit-learn (UCI): 8 × 8 gray images that need no download."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...core.shuffle import Shuffle
from ..source import Split
from .images import ArrayStore, ImageSource, Store


class Digits(ImageSource, kind="digits"):
    """1,797 handwritten digits of 8 × 8 gray pixels, which come with scikit-learn (UCI, Alpaydin and Kaynak 1998).

    300 are for testing and 150 for validation, always the same ones.
    """

    def store(self, split: Split) -> Store | None:
        return _digits() if split == "train" else None


@lru_cache(maxsize=1)
def _digits() -> ArrayStore:
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[:, None]
    order = Shuffle(len(images), seed=0)(np.arange(len(images)))
    splits: list[Split] = ["train"] * len(images)
    for i in order[:300].tolist():
        splits[i] = "test"
    for i in order[300:450].tolist():
        splits[i] = "validation"
    return ArrayStore("scikit-learn's digits", images, list(map(str, digits.target.tolist())), splits)
