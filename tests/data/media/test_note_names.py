"""Music as text: names of notes, and frames that are written and read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qkv.data.media.note_names import frame_of, frames_to_text, note_name, text_to_frames, transposed

FRAMES = st.lists(st.lists(st.integers(0, 127), max_size=5).map(frame_of), max_size=20)


@given(FRAMES)
def test_frames_are_spelled_and_read(frames: list[tuple[int, ...]]) -> None:
    assert text_to_frames(frames_to_text(frames)) == frames
    assert transposed(transposed(frames, 3), -3) == [tuple(n for n in frame if n <= 124) for frame in frames]


def test_names_of_notes() -> None:
    assert [note_name(n) for n in (0, 21, 60, 61, 127)] == ["C-1", "A0", "C4", "C#4", "G9"]
