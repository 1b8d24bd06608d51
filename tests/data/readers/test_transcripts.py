"""Sounds with transcripts in tables and folders, and what is refused or skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.data.media import audio
from qkv.data.readers.transcripts import Transcripts
from qkv.data.source import Skipped

RATE = 8000


def put(path: Path, seconds: float = 0.1, rate: int = RATE, channels: int = 1) -> None:
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(int(seconds * rate)) / rate
    wave = 0.3 * np.sin(2 * np.pi * 440 * time)
    soundfile.write(path, np.stack([wave] * channels, 1), rate)


def entries(path: Path, **settings: Any) -> list[Any]:
    table = Transcripts(path=str(path), **settings).open("train")
    return [table[i] for i in range(len(table))]


def test_tables_name_sounds_and_texts(tmp_path: Path) -> None:
    put(tmp_path / "a.wav")
    (tmp_path / "clips").mkdir()
    put(tmp_path / "clips" / "b.flac")
    (tmp_path / "one.jsonl").write_text(json.dumps({"audio": "a.wav", "text": " hello "}) + "\n")
    (tmp_path / "validated.tsv").write_text("client_id\tpath\tsentence\tup_votes\nx\tb.flac\tHello, you.\t2\n")
    (tmp_path / "mine.csv").write_text("file,said\na.wav,yes\n")
    assert entries(tmp_path / "one.jsonl")[0]["text"] == "hello"
    (common,) = entries(tmp_path / "validated.tsv")
    assert common["audio"] == tmp_path / "clips" / "b.flac" and common["text"] == "Hello, you."
    (mine,) = entries(tmp_path / "mine.csv", text_field="said")
    assert mine["audio"] == tmp_path / "a.wav" and mine["text"] == "yes"


def test_parquet_files_hold_sounds(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    data = audio.encode(np.zeros(80, np.float32), RATE)
    rows = [
        {"audio": {"bytes": data, "path": None}, "text": "a"},
        {"audio": {"bytes": None, "path": "no.wav"}, "text": "b"},
    ]
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    first, second = entries(tmp_path / "a.parquet")
    sound = audio.wave_of(first)
    assert not isinstance(sound, Skipped) and len(sound[0]) == 80
    assert second == "whose sound is missing"


def test_librispeechs_folders(tmp_path: Path) -> None:
    put(tmp_path / "84" / "121123" / "84-121123-0000.flac")
    listed = "84-121123-0000 GO DO YOU HEAR\n84-121123-0001 BUT WHO\n84-121123-0002\n"
    (tmp_path / "84" / "121123" / "84-121123.trans.txt").write_text(listed)
    first, second, third = entries(tmp_path)
    assert first["text"] == "GO DO YOU HEAR" and first["audio"].name == "84-121123-0000.flac"
    assert (second, third) == ("whose sound is missing", "with an empty transcript")
    assert second.where.endswith("line 2")


def test_texts_beside_sounds(tmp_path: Path) -> None:
    for name in ("a.wav", "b.wav", "deep/c.wav"):
        put(tmp_path / name)
    (tmp_path / "a.txt").write_text("one\ntwo ")
    (tmp_path / "deep" / "c.txt").write_text("three", encoding="utf-8-sig")
    first, second, third = entries(tmp_path)
    assert (first["text"], second, third["text"]) == ("one two", "without a transcript (a .txt beside it)", "three")


def test_sounds_outside_of_the_folder_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "out.wav")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_text(json.dumps({"audio": "../out.wav", "text": "x"}) + "\n")
    with pytest.raises(ValueError, match="lies outside of"):
        entries(folder / "a.jsonl")
    (folder / "a.jsonl").unlink()
    (folder / "x.trans.txt").write_text("../out HELLO\n")
    (folder / "._w.trans.txt").write_text("left by a system\n")
    with pytest.raises(ValueError, match="lies outside of"):
        entries(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"audio": "a.wav"}',
            r"has no column text, sentence, transcript …; it has audio; give data\.text_field=COLUMN",
        ),
        ('{"text": "x"}', r"has no column audio, path, file …"),
    ],
)
def test_missing_columns_are_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(content + "\n")
    with pytest.raises(ValueError, match=message):
        entries(tmp_path / "a.jsonl")


def test_a_folder_without_transcripts_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.wav")
    with pytest.raises(ValueError, match=r"has no sound with a transcript, and 1 of something else"):
        entries(tmp_path)
    with pytest.raises(ValueError, match=r"no training data: give data\.path, a table"):
        Transcripts().open("train")


def test_sounds_are_resampled_and_channels_averaged(tmp_path: Path) -> None:
    put(tmp_path / "a.wav", seconds=0.2, rate=44100, channels=8)
    sound = audio.wave_of({"audio": tmp_path / "a.wav"}, RATE)
    assert not isinstance(sound, Skipped)
    assert sound[1] == RATE and len(sound[0]) == 1600
    assert np.abs(sound[0]).max() == pytest.approx(0.3, abs=0.02)


def test_damaged_sounds_are_skipped_with_a_reason(tmp_path: Path) -> None:
    put(tmp_path / "a.wav")
    whole = (tmp_path / "a.wav").read_bytes()
    assert audio.wave_of({"audio": whole[: len(whole) // 2]}) == audio.decode(whole[: len(whole) // 2])
    assert isinstance(audio.wave_of({"audio": whole[: len(whole) // 2]}), Skipped)
    assert audio.wave_of({"audio": b""}) == "empty"
    assert audio.wave_of({"audio": whole[:44]}) is not None
    assert audio.wave_of({"audio": tmp_path / "no.wav"}) == "not there"
