"""Music: Standard MIDI files, and chords in JSON such as the JSB Chorales."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from ...core.spec import brief
from ..file_kinds import files_below
from ..files.compressed import suffix_of
from ..files.json_lines import json_file
from ..holdout import FileSource
from ..media import midi
from ..media.image_files import stamp_of
from ..media.note_names import HIGHEST, LOWEST, Frame, frame_of, frames_to_text
from ..source import Example, OnError, Skipped, Split, Table, names_of
from ..tables import ComputedTable

_REST = -1  # a silent voice


class MidiScores(FileSource, kind="scores"):
    """Pieces of music as frames: the notes that sound at each step.

    A `.json` file is a list of pieces, or an object with such lists as `train`, `valid` and `test`. A piece is a list
    of chords, and a chord is a list of MIDI numbers; −1 is a voice that rests. Anything else is a MIDI file, or a
    folder of `.mid` and `.midi` files, also in subfolders.

    steps:    frames per quarter note, to which MIDI files are rounded.
    shortest: minimum number of frames in a piece; shorter ones are skipped.
    on_error: "skip" and count MIDI files that can't be read, or "raise" an error.
    """

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    steps: int = Field(default=1, ge=1, le=48)
    shortest: int = Field(default=2, ge=1)
    on_error: OnError = "skip"

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("mido",)

    def paths(self, split: Split) -> tuple[Path, ...]:
        name = self.split_setting("path", split)
        if name is None:
            if split == "train":
                raise ValueError(
                    "no training data: give data.path, a JSON file of chords, a MIDI file or a folder of them"
                )
            return ()
        path = Path(name).expanduser()
        if not path.is_dir():
            return (path,)
        files = files_below(path, (".mid", ".midi"))
        if not files:
            raise ValueError(f"{brief(path)} holds no file that ends in .mid or .midi")
        return tuple(files)

    def gives(self, split: Split) -> bool:
        return super().gives(split) or bool(self._own(split))

    def open(self, split: Split) -> Table:
        own = self._own(split) if split == "train" or not super().gives(split) else None
        if own is not None:
            return self._chord_table(self.paths("train")[0], own)
        paths = self.paths(split)
        if not _is_json(paths[0]):
            return ComputedTable(len(paths), lambda i: self._midi_example(paths[i]))
        content = _content(paths[0])
        pieces = _part(content, split) if isinstance(content, dict) else content
        if not isinstance(pieces, list):
            names = f" for {' or '.join(names_of(split))}" if isinstance(content, dict) else ""
            raise ValueError(f"{brief(paths[0])} has {type(pieces).__name__} in place of a list of pieces{names}")
        return self._chord_table(paths[0], pieces)

    def _own(self, split: Split) -> list[Any] | None:
        """The pieces of a split in the file for training."""
        path = self.paths("train")[0]
        pieces = _part(_content(path), split) if _is_json(path) else None
        return pieces if isinstance(pieces, list) else None

    def _chord_table(self, path: Path, pieces: list[Any]) -> Table:
        """Pieces in JSON."""

        def example(i: int) -> Example | Skipped:
            where = f"{str(path)!r}, piece {i + 1:,}"
            if not isinstance(pieces[i], list):
                raise ValueError(f"{where}: a piece is a list of chords, not {type(pieces[i]).__name__}")
            frames = [_frame(chord, f"{where}, chord {n:,}") for n, chord in enumerate(pieces[i], 1)]
            return self._example(frames, where)

        return ComputedTable(len(pieces), example)

    def _midi_example(self, path: Path) -> Example | Skipped:
        try:
            frames = midi.read(path, self.steps)
        except ValueError as error:
            if self.on_error == "raise":
                raise ValueError(f"{error}; data.on_error=skip skips such files") from None
            return Skipped("that can't be read", str(path))
        return self._example(frames, repr(str(path)))

    def _example(self, frames: list[Frame], where: str) -> Example | Skipped:
        if len(frames) < self.shortest:
            return Skipped("too short")
        return {"text": frames_to_text(frames), "frames": frames, "where": where}


def _frame(chord: Any, where: str) -> Frame:
    notes: list[Any] = chord if isinstance(chord, list) else [None]
    if any(not isinstance(n, int) or not (n == _REST or LOWEST <= n <= HIGHEST) for n in notes):
        raise ValueError(
            f"{where}: a chord is a list of numbers from {LOWEST} to {HIGHEST}, or {_REST}, not {brief(chord)}"
        )
    return frame_of(n for n in notes if n != _REST)


def _part(content: Any, split: Split) -> Any:
    """The value for a split in a JSON file; None if it has no splits, or not this one."""
    if not isinstance(content, dict):
        return None
    return next((content[name] for name in names_of(split) if name in content), None)


def _is_json(path: Path) -> bool:
    return suffix_of(path) == ".json"


def _content(path: Path) -> Any:
    return _parsed(path, stamp_of(path))


@lru_cache(maxsize=4)
def _parsed(path: Path, stamp: tuple[int, int]) -> Any:
    return json_file(path)
