"""`qkv transcribe`: text, subtitles and JSON, of files, folders and standard input."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile
from tests.helpers import whispering

from qkv.cli import main
from qkv.data.media.audio import encode

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("whisper")
    whispering.save(folder, seed=0)
    return str(folder)


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    folder = tmp_path / "sounds"
    (folder / "more").mkdir(parents=True)
    (folder / "a.wav").write_bytes(encode(whispering.noise(0.3), 16_000))
    (folder / "more" / "b.wav").write_bytes(encode(whispering.noise(0.4, 1), 44_100))
    (folder / "notes.txt").write_text("no sound")
    (folder / "._a.wav").write_text("left by a system")
    return folder


def test_a_folder_gives_a_line_for_each_sound(model: str, sounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcribe", model, str(sounds), "--json", "--language", "de", "--words", "--device", "cpu"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["input"] for line in lines] == [str(sounds / "a.wav"), str(sounds / "more" / "b.wav")]
    assert lines[0]["language"] == "de" and lines[0]["duration"] == 0.3
    assert all(segment["words"] for line in lines for segment in line["segments"])


def test_subtitles_go_to_files(model: str, sounds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["transcribe", model, str(sounds), "--vtt", "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert main(command) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.vtt", "b.vtt"]
    assert (tmp_path / "out" / "a.vtt").read_text().startswith("WEBVTT\n")
    assert main(command) == 2 and "exists" in capsys.readouterr().err


def test_files_are_not_written_into_a_model(model: str, sounds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path(model).iterdir())
    assert main(["transcribe", model, str(sounds / "a.wav"), "--out", model]) == 2
    assert "and no other files are written into it" in capsys.readouterr().err
    assert sorted(Path(model).iterdir()) == before


def test_standard_input_is_a_sound(
    model: str, sounds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO((sounds / "a.wav").read_bytes())))
    assert main(["transcribe", model, "-", "--srt", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert not out.strip() or out.startswith("1\n00:00:0")


def test_mistakes_have_one_sentence_each(
    model: str, sounds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    file = str(sounds / "a.wav")
    for argv, message in (
        ([model, str(tmp_path / "empty")], "there is no sound or video in the folder"),
        ([model, str(sounds / "notes.txt")], "can't be transcribed: it is no sound that can be read"),
        ([model, file, "--srt", "--vtt"], "give one of --srt and --vtt"),
        ([model, str(sounds), "--srt"], "subtitles are of one sound, and there are 2; add --out DIR"),
        ([model, "-", "-"], "give `-` once"),
        ([model, file, "--language", "xx"], "no language 'xx'"),
        ([model, file, file, "--out", str(tmp_path / "out")], "two sounds have the same name"),
        (["small-english", file], "`qkv transcribe` needs a model of speech"),
    ):
        assert main(["transcribe", *argv, "--device", "cpu"]) == 2, argv
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error, error


@pytest.mark.slow
def test_the_commands_of_the_page_run(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Words, subtitles of a film, and a sound from a pipe, as docs/modalities.md shows them, by a tiny model."""
    av = pytest.importorskip("av", reason="PyAV is not installed")
    page = (Path(__file__).parents[2] / "docs" / "modalities.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```bash\n(.*?)```", page, re.S) if "qkv transcribe" in block]
    commands = [line.rpartition("| ")[2] for line in block.strip().splitlines()]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, tmp_path / "openai" / "whisper-tiny")
    soundfile.write("talk.mp3", whispering.noise(0.5), 16_000)
    with av.open("talk.mp3") as given, av.open("film.mp4", "w") as out:
        track = out.add_stream_from_template(given.streams.audio[0])
        for packet in given.demux(audio=0):
            if packet.dts is not None:
                packet.stream = track
                out.mux(packet)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(encode(whispering.noise(0.4), 8000))))
    shown = []
    for command in commands:
        assert main([*shlex.split(command, comments=True)[1:], "--device", "cpu"]) == 0, capsys.readouterr().err
        shown.append(capsys.readouterr().out)
    assert len(shown) == 3 and all(len(line.split("\t")) == 3 for line in shown[0].strip().split("\n"))
    assert shown[1].strip() == str(Path("subtitles/film.srt")) and "-->" in Path("subtitles/film.srt").read_text()
    assert json.loads(shown[2])["duration"] == 0.8  # 6,400 samples
