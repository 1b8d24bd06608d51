"""The handwritten digits that come with the package."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.readers import digits
from qkv.data.readers.digits import Digits
from qkv.data.source import SPLITS


def test_digits_come_along() -> None:
    source = Digits()
    assert [len(source.table(split)) for split in SPLITS] == [1347, 150, 300]
    one = next(source.examples("test", shuffle=False))
    assert one["image"].shape == (1, 8, 8) and one["image"].max() > 200 and one["label"] in "0123456789"
    seen = {e["where"] for split in SPLITS for e in source.examples(split)}
    assert len(seen) == 1797


def test_they_are_those_of_scikit_learn() -> None:
    load_digits = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits
    theirs = load_digits()
    np.testing.assert_array_equal(digits._table(), np.column_stack([theirs.data, theirs.target]))
