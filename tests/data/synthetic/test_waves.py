"""Generated time series."""

from __future__ import annotations

import numpy as np

from qkv.data.synthetic.waves import Waves


def test_made_waves_are_the_same_each_time() -> None:
    np.testing.assert_array_equal(Waves(seed=3).values()[0], Waves(seed=3).values()[0])
    assert not np.array_equal(Waves(seed=3).values()[0], Waves(seed=4).values()[0])
