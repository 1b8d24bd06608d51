"""Music as text: a frame (the notes that sound at one time) is written as their names and a full stop, `C5 G4 E4 C3 .`"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...core.spec import brief

Frame = tuple[int, ...]
"""MIDI numbers of the notes that sound, in descending order; middle C, C4, is 60."""

END = "."
_NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")
LOWEST, HIGHEST = 0, 127


def note_name(number: int) -> str:
    """`C4` for 60."""
    return f"{_NAMES[number % 12]}{number // 12 - 1}"


_NUMBERS = {note_name(number): number for number in range(LOWEST, HIGHEST + 1)}


def frame_of(notes: Iterable[int]) -> Frame:
    """A frame of these notes: each once, the highest first."""
    return tuple(sorted(set(notes), reverse=True))


def frames_to_text(frames: Iterable[Frame]) -> str:
    """Frames as text, each followed by a full stop."""
    return " ".join(word for frame in frames for word in (*map(note_name, frame), END))


def text_to_frames(text: str) -> list[Frame]:
    """The frames in a text; the last one may lack its full stop. Raises ValueError for a word that is not a note."""
    frames: list[Frame] = []
    notes: list[int] = []
    for word in text.split():
        if word == END:
            frames.append(frame_of(notes))
            notes = []
        elif word in _NUMBERS:
            notes.append(_NUMBERS[word])
        else:
            raise ValueError(
                f"{brief(word)} is no note; notes are named from {note_name(LOWEST)} to {note_name(HIGHEST)}, such as C#4"
            )
    return [*frames, frame_of(notes)] if notes else frames


def transposed(frames: Iterable[Frame], steps: int) -> list[Frame]:
    """Transpose every note by `steps` semitones, and drop notes outside the MIDI range."""
    return [tuple(n + steps for n in frame if LOWEST <= n + steps <= HIGHEST) for frame in frames]


def runs(frames: Sequence[Frame]) -> list[tuple[int, int, int]]:
    """(note, first frame, frame after the last) of every note; consecutive frames are one note."""
    notes: list[tuple[int, int, int]] = []
    since: dict[int, int] = {}
    for at, frame in enumerate([*frames, ()]):
        for note in [note for note in since if note not in frame]:
            notes.append((note, since.pop(note), at))
        for note in frame:
            since.setdefault(note, at)
    return sorted(notes, key=lambda run: (run[1], -run[0]))


def is_music(word: str) -> bool:
    """Whether a word is a note or a full stop."""
    return word == END or word in _NUMBERS
