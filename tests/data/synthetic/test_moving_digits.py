"""Generated videos of digits move as their labels say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from qkv.data.synthetic.moving_digits import DIRECTIONS, MovingDigits


@pytest.mark.parametrize("name", DIRECTIONS)
def test_digits_move_where_they_say(name: str) -> None:
    source = MovingDigits(noise=0, train=60)
    found = [e["video"][:, 0] for e in source.examples("train") if e["label"] == name]
    assert found
    for frames in found:
        for before, after in pairwise(frames):
            np.testing.assert_array_equal(np.roll(before, DIRECTIONS[name], (0, 1)), after)


def test_made_videos_are_new_in_training_and_the_same_otherwise() -> None:
    source = MovingDigits(train=3, test=3, asks="digit")
    tables = [
        [e["video"].tobytes() for e in source.examples("train", seed=s, epoch=e)] for s, e in ((0, 0), (0, 1), (0, 0))
    ]
    assert tables[0] == tables[2] and set(tables[0]).isdisjoint(tables[1])
    assert [e["label"] for e in source.examples("test", seed=0)] == [
        e["label"] for e in source.examples("test", seed=1)
    ]
    assert source.classes == tuple("0123456789") and MovingDigits().classes == tuple(DIRECTIONS)
