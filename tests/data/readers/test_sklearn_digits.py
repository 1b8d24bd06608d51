"""The handwritten digits of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.data.readers import sklearn_digits
from qkv.data.readers.sklearn_digits import Digits
from qkv.data.source import SPLITS


def test_digits_come_along() -> None:
    source = Digits()
    assert [len(source.table(split)) for split in SPLITS] == [1347, 150, 300]
    one = next(source.examples("test", shuffle=False))
    assert one["image"].shape == (1, 8, 8) and one["image"].max() > 200 and one["label"] in "0123456789"
    seen = {e["where"] for split in SPLITS for e in source.examples(split)}
    assert len(seen) == 1797


def test_the_file_has_what_scikit_learn_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    read = sklearn_digits._table()
    monkeypatch.setattr(sklearn_digits, "find_spec", lambda name: None)
    np.testing.assert_array_equal(read, sklearn_digits._table())
