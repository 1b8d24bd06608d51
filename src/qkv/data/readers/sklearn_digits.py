"""Handwritten digits from scikit-learn (UCI): 8 × 8 gray images that need no download."""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

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
    table = _table()
    images = np.rint(table[:, :-1].reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    order = Shuffle(len(images), seed=0)(np.arange(len(images)))
    splits: list[Split] = ["train"] * len(images)
    for i in order[:300].tolist():
        splits[i] = "test"
    for i in order[300:450].tolist():
        splits[i] = "validation"
    return ArrayStore("scikit-learn's digits", images, list(map(str, table[:, -1].astype(int).tolist())), splits)


def _table() -> np.ndarray:
    """A row of 64 gray values and a class for each digit, from scikit-learn's file: importing the library takes seconds."""
    library = find_spec("sklearn")
    if library is not None and library.origin is not None:
        path = Path(library.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            with gzip.open(path, "rt") as lines:
                return np.loadtxt(lines, delimiter=",")
    from sklearn.datasets import load_digits

    digits = load_digits()
    return np.column_stack([digits.data, digits.target])
