"""Generated chord progressions."""

from __future__ import annotations

from qkv.data.synthetic.chord_progressions import Progressions


def test_made_progressions_are_in_four_voices_and_end_where_they_began() -> None:
    for one in Progressions(train=10, validation=5, test=20).examples("test"):
        frames = one["frames"]
        assert len(frames) % 2 == 0 and all(2 <= len(frame) <= 4 for frame in frames)
        assert frames[0][-1] == frames[-1][-1]
