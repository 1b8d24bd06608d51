"""Standard MIDI files, formats 0 and 1: the notes in them, and notes written to one.

qkv generate runs/music "C5 G4 E4 C3 ." | python -m qkv.data.midi song.mid
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .notes import Frame, frame_of, frames_in, runs

_DRUMS = 9  # the channel whose notes are drums, from 0
_TICKS = 480  # of a quarter note, in what is written
_NOTE_OFF, _NOTE_ON, _PROGRAM, _PRESSURE, _SYSTEM, _ESCAPE, _META = 0x80, 0x90, 0xC0, 0xD0, 0xF0, 0xF7, 0xFF
_LONGEST = 1 << 16  # frames: no piece is longer, but a broken file may say so


class Note(NamedTuple):
    """A key and when it is down, in ticks."""

    number: int
    start: int
    stop: int


def read(path: Path, steps: int = 1) -> list[Frame]:
    """What sounds at each step of a file, `steps` to a quarter note. Notes begin and end at the nearest step, and last for
    one at least; drums are left out.

    Raises ValueError where it is no MIDI file of these formats, or broken.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{str(path)!r} can't be read: {error.strerror}") from None
    try:
        ticks, notes = parse(data)
    except (IndexError, struct.error):
        raise ValueError(f"{str(path)!r} ends in the middle: it is no whole MIDI file") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r}: {error}") from None
    grid = ticks / steps
    spans = [(note.number, round(note.start / grid), round(note.stop / grid)) for note in notes]
    if not spans:
        return []
    first, last = min(start for _, start, _ in spans), max(max(start + 1, stop) for _, start, stop in spans)
    if last - first > _LONGEST:
        raise ValueError(
            f"{str(path)!r} lasts for {last - first:,} steps, and {_LONGEST:,} are the most; lower `steps`"
        )
    sounding: list[set[int]] = [set() for _ in range(last - first)]
    for number, start, stop in spans:
        for at in range(start, max(start + 1, stop)):
            sounding[at - first].add(number)
    return [frame_of(notes) for notes in sounding]


def parse(data: bytes) -> tuple[int, list[Note]]:
    """Ticks of a quarter note, and all notes. Raises ValueError, IndexError or struct.error where it is no such file."""
    if data[:4] != b"MThd":
        raise ValueError("a MIDI file begins with MThd, and this one does not")
    size, form, tracks, division = struct.unpack(">IHHH", data[4:14])
    if form not in (0, 1):
        raise ValueError(f"this is a MIDI file of format {form}; 0 and 1 are read")
    if division & 0x8000 or not division:
        raise ValueError("its time is counted in seconds (SMPTE) and not in parts of a quarter note")
    at, notes = 8 + size, list[Note]()
    while tracks:
        name, length = struct.unpack(">4sI", data[at : at + 8])
        if at + 8 + length > len(data):
            raise IndexError
        if name == b"MTrk":
            notes += _notes(data[at + 8 : at + 8 + length])
            tracks -= 1
        at += 8 + length
    return division, sorted(notes, key=lambda note: (note.start, note.number))


def _notes(track: bytes) -> Iterator[Note]:
    """The notes of a track. One that is struck again ends there, one that never ends lasts to the end of the track."""
    down: dict[tuple[int, int], int] = {}
    time = 0
    for time, status, first, second in _events(track):
        kind, key = status & 0xF0, (status & 0x0F, first)
        if kind not in (_NOTE_ON, _NOTE_OFF) or key[0] == _DRUMS:
            continue
        if key in down:
            yield Note(first, down.pop(key), time)
        if kind == _NOTE_ON and second:  # a note struck with no force is one let go
            down[key] = time
    yield from (Note(number, start, time) for (_, number), start in down.items())


def _events(track: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(time, status, first and second byte) of what channels are told; what is about other things is passed over."""
    at = time = status = 0
    while at < len(track):
        wait, at = _number(track, at)
        time += wait
        if track[at] & 0x80:
            status, at = track[at], at + 1
        if status >= _SYSTEM:
            at += status == _META  # its kind
            if status not in (_SYSTEM, _ESCAPE, _META):
                raise ValueError(f"there is a message {status:#x} in a track, which has no place in a file")
            length, at = _number(track, at)
            at += length
        elif status >= _NOTE_OFF:
            one = status & 0xF0 in (_PROGRAM, _PRESSURE)
            yield time, status, track[at], 0 if one else track[at + 1]
            at += 1 if one else 2
        else:
            raise ValueError("a track begins with data and no message before")


def _number(track: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, seven bits a byte, and where it ends."""
    value = 0
    for used in range(4):
        value = value << 7 | track[at + used] & 0x7F
        if not track[at + used] & 0x80:
            return value, at + used + 1
    raise ValueError("a number in a track is longer than four bytes")


def written(frames: Sequence[Frame], steps: int = 1, tempo: int = 90) -> bytes:
    """A MIDI file of format 0: frames of a `steps`-th of a quarter note, at so many quarters a minute.

    A note that sounds in consecutive frames is held.
    """
    step = _TICKS // steps
    events = sorted(
        event
        for note, start, stop in runs(frames)
        for event in ((start * step, 1, bytes((_NOTE_ON, note, 80))), (stop * step, 0, bytes((_NOTE_OFF, note, 0))))
    )
    track = b"\x00\xff\x51\x03" + round(60_000_000 / tempo).to_bytes(3, "big")
    before = 0
    for time, _, message in events:
        track += _spelled(time - before) + message
        before = time
    track += b"\x00\xff\x2f\x00"
    return b"MThd" + struct.pack(">IHHH", 6, 0, 1, _TICKS) + b"MTrk" + struct.pack(">I", len(track)) + track


def _spelled(value: int) -> bytes:
    """A number of variable length."""
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))


def main() -> None:
    """Notes in words on standard input, a MIDI file by its name."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m qkv.data.midi SONG.mid < notes")
    try:
        Path(sys.argv[1]).write_bytes(written(frames_in(sys.stdin.read())))
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
