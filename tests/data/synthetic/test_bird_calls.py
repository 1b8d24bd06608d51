"""Generated bird calls."""

from __future__ import annotations

import numpy as np

from qkv.data.synthetic.bird_calls import CALLS, Calls


def test_made_calls_are_of_all_classes_and_the_same_each_time() -> None:
    first = list(Calls(train=12).examples("train", shuffle=False))
    assert [example["label"] for example in first] == list(CALLS) * 2
    again = list(Calls(train=12).examples("train", shuffle=False))
    np.testing.assert_array_equal(first[5]["audio"], again[5]["audio"])
