"""Music: Standard MIDI files, and chords in JSON such as the JSB Chorales."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ..files.compressed import bare_name, open_bytes
from ..holdout import FileSource
from ..media import midi
from ..media.note_names import HIGHEST, LOWEST, Frame, frame_of, frames_to_text
from ..source import Example, OnError, Skipped, Split, Table

_SPLITS: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("valid", "validation", "dev"),
    "test": ("test",),
}
_REST = -1  # a voice that is silent


class Scores(FileSource, kind="scores"):
    """Pieces of music as frames, what sounds at each step.

    A `.json` file is a list of pieces, or an object with such lists as `train`, `valid` and `test`; a piece is a list of
    chords, a chord a list of MIDI numbers, in which −1 is a voice that rests. Anything else is a MIDI file, or a folder of
    `.mid` and `.midi` files, also in folders below.

    steps:    frames of a quarter note, to which MIDI files are rounded.
    shortest: frames of a piece at least; a shorter one is skipped.
    on_error: "skip" and count MIDI files that can't be read, or "raise" an error.
    """

    renamed: ClassVar[dict[str, str]] = {"bad": "on_error"}

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    steps: int = Field(default=1, ge=1, le=48)
    shortest: int = Field(default=2, ge=1)
    on_error: OnError = "skip"

    def paths(self, split: Split) -> tuple[Path, ...]:
        given = self.path if split == "train" else getattr(self, f"{split}_path")
        if given is None:
            if split == "train":
                raise ValueError(
                    "no training data: give data.path, a JSON file of chords, a MIDI file or a folder of them"
                )
            return ()
        path = Path(given).expanduser()
        if not path.is_dir():
            return (path,)
        found = sorted(file for file in path.rglob("*") if file.suffix.lower() in (".mid", ".midi"))
        if not found:
            raise ValueError(f"{str(path)!r} holds no file that ends in .mid or .midi")
        return tuple(found)

    def gives(self, split: Split) -> bool:
        return super().gives(split) or bool(self._own(split))

    def open(self, split: Split) -> Table:
        own = self._own(split) if split == "train" or not super().gives(split) else None
        if own is not None:
            return _Chords(self.paths("train")[0], own, self.shortest)
        paths = self.paths(split)
        if not _is_json(paths[0]):
            return _Files(paths, self)
        found = _content(paths[0])
        pieces = _part(found, split) if isinstance(found, dict) else found
        if not isinstance(pieces, list):
            wanted = f" for {' or '.join(_SPLITS[split])}" if isinstance(found, dict) else ""
            raise ValueError(f"{str(paths[0])!r} has {type(pieces).__name__} in place of a list of pieces{wanted}")
        return _Chords(paths[0], pieces, self.shortest)

    def _own(self, split: Split) -> list[Any] | None:
        """The pieces of a split in the file of all."""
        path = self.paths("train")[0]
        found = _part(_content(path), split) if _is_json(path) else None
        return found if isinstance(found, list) else None


def _part(found: Any, split: Split) -> Any:
    """What a file has for a split, None where it says nothing of splits or not of this one."""
    return next((found[name] for name in _SPLITS[split] if name in found), None) if isinstance(found, dict) else None


def _is_json(path: Path) -> bool:
    return bare_name(path).endswith(".json")


def _content(path: Path) -> Any:
    stat = path.stat() if path.is_file() else None
    return _parsed(path, 0 if stat is None else stat.st_size, 0 if stat is None else stat.st_mtime_ns)


@lru_cache(maxsize=4)
def _parsed(path: Path, size: int, mtime_ns: int) -> Any:
    try:
        return json.loads(bytes(open_bytes(path)))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not valid JSON: {error}") from None


class _Chords:
    """Pieces in JSON."""

    def __init__(self, path: Path, pieces: list[Any], shortest: int) -> None:
        self._path, self._pieces, self._shortest = path, pieces, shortest

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, i: int) -> Example | Skipped:
        where = f"{str(self._path)!r}, piece {i + 1:,}"
        piece = self._pieces[i]
        if not isinstance(piece, list):
            raise ValueError(f"{where}: a piece is a list of chords, not {type(piece).__name__}")
        return _example(
            [self._frame(chord, f"{where}, chord {n:,}") for n, chord in enumerate(piece, 1)], where, self._shortest
        )

    @staticmethod
    def _frame(chord: Any, where: str) -> Frame:
        notes: list[Any] = chord if isinstance(chord, list) else [None]
        bad = [n for n in notes if not isinstance(n, int) or not (n == _REST or LOWEST <= n <= HIGHEST)]
        if bad:
            raise ValueError(
                f"{where}: a chord is a list of numbers from {LOWEST} to {HIGHEST}, or {_REST}, not {chord!r:.60}"
            )
        return frame_of(n for n in notes if n != _REST)


class _Files:
    """MIDI files, a piece each."""

    def __init__(self, paths: tuple[Path, ...], spec: Scores) -> None:
        self._paths, self._spec = paths, spec

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, i: int) -> Example | Skipped:
        path = self._paths[i]
        try:
            frames = midi.read(path, self._spec.steps)
        except ValueError as error:
            if self._spec.on_error == "raise":
                raise ValueError(f"{error}; data.on_error=skip skips such files") from None
            return Skipped("that can't be read", str(path))
        return _example(frames, repr(str(path)), self._spec.shortest)


def _example(frames: list[Frame], where: str, shortest: int) -> Example | Skipped:
    if len(frames) < shortest:
        return Skipped("too short")
    return {"text": frames_to_text(frames), "frames": frames, "where": where}
