"""Pieces of music from JSON and MIDI files, and made ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.media import midi
from qkv.data.readers.midi_scores import MidiScores
from qkv.data.source import Counts, Skipped, read

PIECE = [[60, 64, 60], [], [-1, 67, 48, -1]]


def write(folder: Path, content: Any, name: str = "a.json") -> str:
    (folder / name).write_text(json.dumps(content))
    return str(folder / name)


def test_json_has_its_own_splits(tmp_path: Path) -> None:
    source = MidiScores(path=write(tmp_path, {"train": [PIECE], "valid": [PIECE[:2], PIECE[:1]], "test": [PIECE]}))
    (one,) = source.examples("train")
    assert one["frames"] == [(64, 60), (), (67, 48)]
    assert one["text"] == "E4 C4 . . G4 C3 ."
    assert source.notes() == ()
    table = source.table("validation")
    assert isinstance(table[0], dict) and table[1] == Skipped("too short")


def test_a_list_of_pieces_is_held_out_of(tmp_path: Path) -> None:
    source = MidiScores(path=write(tmp_path, [[[60 + n], [61]] for n in range(20)]))
    assert "held out" in source.notes()[0]
    assert len(list(source.examples("train"))) == 16


def test_midi_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for n in range(10):
        (tmp_path / "below" / f"{n}.mid").write_bytes(midi.to_midi([(60 + n, 50), (62,)], 2))
    (tmp_path / "below" / "._0.mid").write_bytes(b"left by a system")
    source = MidiScores(path=str(tmp_path), steps=2)
    texts = {one["text"] for split in ("train", "validation", "test") for one in source.examples(split)}
    assert len(texts) == 10 and "C4 D3 . D4 ." in texts
    (tmp_path / "below" / "broken.mid").write_bytes(b"MThd")
    counts, table = Counts(), source.open("train")
    assert len(read(table, range(len(table)), counts)) == 10
    assert f"1 skipped (1 that can't be read, {str(tmp_path / 'below' / 'broken.mid')!r})" in str(counts)
    with pytest.raises(ValueError, match=r"broken\.mid': it ends in the middle.*data\.on_error=skip skips such files"):
        list(MidiScores(path=str(tmp_path), on_error="raise").examples("train"))
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match=r"holds no file that ends in .mid"):
        MidiScores(path=str(tmp_path / "none")).table("train")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([[[60], [200]]], "piece 1, chord 2: a chord is a list of numbers from 0 to 127"),
        ([[[60], 3]], "piece 1, chord 2"),
        ([[[60], ["C"]]], "piece 1, chord 2"),
        ([3], "piece 1: a piece is a list of chords, not int"),
        ({"valid": []}, "has NoneType in place of a list of pieces for train"),
        (7, "has int in place of a list"),
    ],
)
def test_what_is_no_music_is_named(tmp_path: Path, content: Any, said: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(ValueError, match=said):
        list(MidiScores(path=path, validation_path=path, test_path=path).examples("train"))
