"""Reads and writes Standard MIDI files, formats 0 and 1, with mido.

qkv generate runs/music "C5 G4 E4 C3 ." | python -m qkv.data.media.midi song.mid
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.atomic import write_file
from ...core.optional_libraries import need
from ...core.spec import brief
from .note_names import HIGHEST, Frame, runs, text_to_frames

MOST_BYTES = 2 << 20  # in a file; mido needs several hundred bytes of memory for a message of three
_DRUMS = 9  # the channel of drums, from 0
_TICKS = 480  # per quarter note in written files, or the next lower multiple of the steps
_LONGEST = 1 << 16  # frames in a piece at most; a broken file may claim more
_MOST_TICKS = 1 << 40  # in a track at most
_ENDLESS = re.compile(rb"[\x80-\xff]{65536}")  # may be an endless number, which takes mido quadratic time


class Note(NamedTuple):
    """A key and the time that it is pressed, in ticks."""

    number: int
    start: int
    stop: int


def read(path: Path, steps: int = 1) -> list[Frame]:
    """Read the notes that sound at each step of a file, `steps` per quarter note, from its first note to its last. Notes
    begin and end at the nearest step, and last at least one; drums are left out.

    Raises ValueError if it is broken, or not a MIDI file of these formats.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{brief(path)} can't be read: {error.strerror}") from None
    try:
        ticks, notes = parse(data)
        return _frames(notes, ticks, steps)
    except ValueError as error:
        raise ValueError(f"{brief(path)}: {error}") from None


def _frames(notes: Sequence[Note], ticks: int, steps: int) -> list[Frame]:
    """Put notes on a grid. Raises ValueError if there are too many frames."""
    if not notes:
        return []
    numbers = np.array([note.number for note in notes])
    edges = np.array([(note.start, note.stop) for note in notes], np.int64)
    starts, stops = ((2 * edges * steps + ticks) // (2 * ticks)).T
    stops = np.maximum(stops, starts + 1)
    first = int(starts.min())
    length = int(stops.max()) - first
    if length > _LONGEST:
        raise ValueError(f"it lasts for {length:,} steps, and {_LONGEST:,} are the most; lower `steps`")
    changes = np.zeros((length + 1, HIGHEST + 1), np.int32)
    np.add.at(changes, (starts - first, numbers), 1)
    np.add.at(changes, (stops - first, numbers), -1)
    sounding = changes.cumsum(0)[:-1, ::-1] > 0  # from the highest down
    return [tuple((HIGHEST - np.flatnonzero(row)).tolist()) for row in sounding]


def parse(data: bytes) -> tuple[int, list[Note]]:
    """Parse a MIDI file: ticks per quarter note, and all notes. Raises ValueError if it is not a valid MIDI file."""
    need("reading or writing a MIDI file", "mido")
    import mido

    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB, which no piece of music needs")
    if _ENDLESS.search(data):
        raise ValueError("it has a number or text of many thousand bytes, which no music has")
    try:
        file = mido.MidiFile(file=io.BytesIO(_known(data)), clip=True)
    except EOFError:
        raise ValueError("it ends in the middle: it is no whole MIDI file") from None
    except Exception as error:  # mido raises errors of many types on broken bytes
        raise ValueError(f"it is no MIDI file that can be read ({error or type(error).__name__})") from None
    if file.type not in (0, 1):
        raise ValueError(f"this is a MIDI file of format {file.type}; 0 and 1 are read")
    if file.ticks_per_beat <= 0:
        raise ValueError("its time is counted in seconds (SMPTE) and not in parts of a quarter note")
    notes = [note for track in file.tracks for note in _notes(track)]
    return file.ticks_per_beat, sorted(notes, key=lambda note: (note.start, note.number))


def _known(data: bytes) -> bytes:
    """The header and tracks of a file, without other chunks, which readers should skip but mido rejects."""
    at, kept = 0, []
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at + 4 : at + 8], "big")
        if not at or data[at : at + 4] == b"MTrk":
            kept.append(data[at:end])
        at = end
    return b"".join(kept)


def _notes(track: Iterable[Any]) -> Iterator[Note]:
    """The notes of a track. A note that is struck again ends there; one without an end lasts to the end of the track."""
    down: dict[tuple[int, int], int] = {}
    time = 0
    for message in track:
        time += message.time
        if time > _MOST_TICKS:
            raise ValueError(f"it lasts for more than {_MOST_TICKS:,} ticks")
        if message.type not in ("note_on", "note_off") or message.channel == _DRUMS:
            continue
        key = message.channel, message.note
        if key in down:
            yield Note(message.note, down.pop(key), time)
        if message.type == "note_on" and message.velocity:  # velocity 0 releases a note
            down[key] = time
    yield from (Note(number, start, time) for (_, number), start in down.items())


def to_midi(frames: Sequence[Frame], steps: int = 1, tempo: int = 90) -> bytes:
    """Write frames, `steps` per quarter note, as a MIDI file of format 0, at a `tempo` in quarter notes per minute.

    A note that sounds in consecutive frames is held.
    """
    need("reading or writing a MIDI file", "mido")
    import mido

    step = max(1, _TICKS // steps)
    events = sorted(
        event
        for note, start, stop in runs(frames)
        for event in ((start * step, "note_on", note), (stop * step, "note_off", note))
    )
    track = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=round(60_000_000 / tempo))])
    before = 0
    for time, kind, note in events:
        track.append(mido.Message(kind, note=note, velocity=80 if kind == "note_on" else 0, time=time - before))
        before = time
    file = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=step * steps, tracks=[track]).save(file=file)
    return file.getvalue()


def main() -> None:
    """Convert notes as text on standard input into a MIDI file."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m qkv.data.media.midi SONG.mid < notes")
    try:
        write_file(Path(sys.argv[1]), to_midi(text_to_frames(sys.stdin.read())))
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
