"""Which pieces of music are continued, and why others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.media.midi import to_midi
from qkv.runs.tasks.music.predict import _pieces


def test_a_piece_that_cannot_be_continued_says_why(tmp_path: Path) -> None:
    whole = to_midi([(60,), (62,)])
    (tmp_path / "a.mid").write_bytes(whole)
    assert [piece.frames for piece in _pieces(str(tmp_path / "a.mid"), 1)] == [[(60,), (62,)]]
    (tmp_path / "a.mid").write_bytes(whole[:-6])
    with pytest.raises(ValueError, match="it ends in the middle"):
        list(_pieces(str(tmp_path / "a.mid"), 1))
    (tmp_path / "a.mid").write_bytes(to_midi([]))
    with pytest.raises(ValueError, match="piece 1, has no notes, so there is nothing to continue"):
        list(_pieces(str(tmp_path / "a.mid"), 1))
