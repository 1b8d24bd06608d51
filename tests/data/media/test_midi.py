"""Standard MIDI files: what was written is read again, and files of others, byte by byte."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkv.data.media import midi
from qkv.data.media.note_names import frame_of, runs

FRAMES = st.lists(st.lists(st.integers(0, 127), max_size=5).map(frame_of), max_size=20)


def trimmed(frames: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Without silence at the ends, which a file of notes does not say."""
    while frames and not frames[0]:
        frames = frames[1:]
    while frames and not frames[-1]:
        frames = frames[:-1]
    return frames


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FRAMES, st.integers(1, 48))
def test_what_was_written_is_read_again(tmp_path: Path, frames: list[tuple[int, ...]], steps: int) -> None:
    data = midi.to_midi(frames, steps)
    assert len(midi.parse(data)[1]) == len(runs(frames))
    (tmp_path / "a.mid").write_bytes(data)
    assert midi.read(tmp_path / "a.mid", steps) == trimmed(frames)


@pytest.mark.parametrize("steps", [7, 11, 48])
def test_long_pieces_don_t_drift_from_their_grid(tmp_path: Path, steps: int) -> None:
    frames = [(60 + i % 5,) for i in range(2000)]
    (tmp_path / "a.mid").write_bytes(midi.to_midi(frames, steps))
    assert midi.read(tmp_path / "a.mid", steps) == frames


def test_a_file_is_read_on_a_grid(tmp_path: Path) -> None:
    frames = [(60,), (64, 60), (), (67,)]
    path = tmp_path / "a.mid"
    for steps in (1, 4):
        path.write_bytes(midi.to_midi(frames, steps))
        assert midi.read(path, steps) == frames
    assert midi.read(path, 8) == [frame for frame in frames for _ in range(2)]  # it was written with 4


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack(">I", len(data)) + data


def file(*tracks: bytes, form: int = 1, division: int = 96) -> bytes:
    made = b"".join(chunk(b"MTrk", track) for track in tracks)
    return chunk(b"MThd", struct.pack(">HHH", form, len(tracks), division)) + chunk(b"XYZ?", b"passed over") + made


END = b"\x00\xff\x2f\x00"


def test_running_status_sysex_drums_and_notes_let_go_by_no_force() -> None:
    track = (
        b"\x00\xff\x03\x01A"  # a name
        b"\x00\xf0\x02\x01\xf7"  # system exclusive
        b"\x00\xc0\x05"  # a program
        b"\x00\x90\x3c\x40" + b"\x00\x40\x40"  # C4, and E4 by running status
        b"\x60\x3c\x00" + b"\x81\x40\x40\x00"  # let go after 96, and after 192 more
        b"\x00\x99\x24\x40\x10\x89\x24\x00"  # a drum
        b"\x00\x90\x43\x40" + b"\x60\x90\x43\x40" + b"\x60\xb0\x40\x00"  # struck again, and never let go
    )
    _, notes = midi.parse(file(track + END, END))
    assert notes == [
        midi.Note(60, 0, 96), midi.Note(64, 0, 288), midi.Note(67, 304, 400), midi.Note(67, 400, 496)
    ]  # fmt: skip


def test_running_status_continues_behind_a_meta_event() -> None:
    track = b"\x00\x90\x3c\x40" + b"\x60\xff\x01\x02hi" + b"\x00\x40\x40" + b"\x60\x3c\x00" + b"\x00\x40\x00"
    assert midi.parse(file(track + END))[1] == [midi.Note(60, 0, 192), midi.Note(64, 96, 192)]


def test_a_note_that_is_never_let_go_lasts_to_the_end_of_its_track(tmp_path: Path) -> None:
    track = b"\x00\x90\x3c\x40" + b"\x83\x00\xff\x2f\x00"  # ends after 384 ticks, four quarters
    (tmp_path / "a.mid").write_bytes(file(track))
    assert midi.read(tmp_path / "a.mid") == [(60,)] * 4


def test_what_would_take_all_memory_or_forever_is_refused(tmp_path: Path) -> None:
    hanging = b"\x00\x90\x3c\x40" + b"\xbf\xff\x7f\xff\x2f\x00"  # a note of a million ticks, in each of many tracks
    (tmp_path / "a.mid").write_bytes(file(*[hanging] * 20_000, division=32))
    assert len(midi.read(tmp_path / "a.mid")) > 32_000
    for data, said in (
        (bytes(midi.MOST_BYTES + 1), "larger than 2 MiB"),
        (file(b"\x00\x90\x3c\x40" + b"\xff" * 70_000), "many thousand bytes"),
        (file(b"\x00\x90\x3c\x40" + b"\xff" * 1000 + b"\x7f\x80\x3c\x00" + END), "for more than"),
    ):
        (tmp_path / "b.mid").write_bytes(data)
        with pytest.raises(ValueError, match=rf"b\.mid': it .*{said}"):
            midi.read(tmp_path / "b.mid")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"RIFF" + bytes(20), "MThd not found"),
        (file(END, form=2), "of format 2"),
        (file(END, division=0xE728), "counted in seconds"),
        (file(END)[:-2], "no whole MIDI file"),
        (file(b"\x00\x90\x3c"), "no whole MIDI file"),
        (file(b"\x00\x3c\x40"), "running status without"),
        (file(b"\xff\xff\xff\xff\xff\x90"), "no whole MIDI file"),
        (file(b"\x00\x90\x3c\x40\xff\xff\xff\x7f\x80\x3c\x00" + END), "are the most"),
        (b"", "no whole MIDI file"),
    ],
)
def test_what_is_no_such_file_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "x.mid").write_bytes(data)
    with pytest.raises(ValueError, match=said):
        midi.read(tmp_path / "x.mid")


@given(st.binary(max_size=60))
def test_any_bytes_in_a_track_are_read_or_refused(data: bytes) -> None:
    try:
        _, notes = midi.parse(file(data))
    except ValueError:
        return
    assert all(note.start <= note.stop for note in notes)


def test_words_become_a_file_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "song.mid"
    monkeypatch.setattr("sys.argv", ["midi", str(path)])
    monkeypatch.setattr("sys.stdin", io.StringIO("C5 E4 . D5 ."))
    midi.main()
    assert midi.read(path) == [(72, 64), (74,)]
    monkeypatch.setattr("sys.stdin", io.StringIO("C5 H4 ."))
    with pytest.raises(SystemExit, match="'H4' is no note"):
        midi.main()
