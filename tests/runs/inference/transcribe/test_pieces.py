"""A window's tokens are divided at pairs of timestamps."""

from __future__ import annotations

from qkv.runs.inference.transcribe.pieces import pieces


def test_windows_end_at_the_last_pair_of_timestamps() -> None:
    first = 100
    assert [vars(p) for p in pieces([100, 7, 110], first, 50)[0]] == [{"begin": 0, "end": 3, "start": 0, "stop": 10}]
    assert pieces([100, 7, 110], first, 50)[1] is None
    found, following = pieces([102, 7, 110, 110, 8, 9], first, 50)  # the end of the window cuts the text off
    assert [(p.begin, p.end, p.start, p.stop) for p in found] == [(0, 4, 2, 10)] and following == 10
    found, following = pieces([102, 7, 110, 111, 8, 120], first, 50)  # nothing is said after 120
    assert [(p.begin, p.end, p.start, p.stop) for p in found] == [(0, 3, 2, 10), (3, 6, 11, 20)] and following is None
    assert [(p.start, p.stop) for p in pieces([7, 8], first, 31)[0]] == [(0, 31)]
