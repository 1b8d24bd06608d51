"""`python -m bench transcribing`: its model, its sound and its table."""

import json
from pathlib import Path

import pytest
from bench.transcribing import work
from bench.transcribing.command import main, other_tokens, table
from bench.transcribing.peer import LIBRARIES

from bench import machine


def test_the_model_writes_the_asked_number_of_tokens_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "FOLDER", tmp_path)
    folder = work.model(tiny=True)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "whisper" and config["vocab_size"] == 51_865 and "qkv" not in config
    tokens = json.loads((folder / "generation_config.json").read_text())
    assert tokens["no_timestamps_token_id"] == 50_363 and tokens["decoder_start_token_id"] == 50_258
    transcribe = LIBRARIES["qkv"][0](str(folder), "fp32", 1)
    wave = work.sound(1)
    greedy = transcribe(wave, 6, 1)
    assert [len(row) for row in greedy] == [6] and max(greedy[0]) < work.TEXT


def test_the_sound_is_as_long_as_its_windows() -> None:
    wave = work.sound(2)
    assert wave.shape == (2 * 30 * 16_000,) and 0.1 < abs(wave).max() < 1
    assert (wave[: len(wave) // 2] != wave[len(wave) // 2 :]).any()


def test_other_tokens_are_counted() -> None:
    rows = {"qkv": [[1, 2], [3, 4]], "faster-whisper": [[1, 2], [3, 5]]}
    assert other_tokens(rows) == {"faster-whisper": 0.25}


def test_the_table_tells_goals_and_who_is_missing() -> None:
    case = {
        "precision": "fp32",
        "date": "2026-11-30",
        "machine": machine.describe(),
        "code": {"commit": "abc"},
        "load_before": 0.1,
        "threads": 2,
        "rounds": 1,
        "windows": 6,
        "new_tokens": 100,
        "versions": {"qkv": "torch 2", "faster-whisper": "faster-whisper 1"},
        "failed": {},
        "seconds": {"qkv": [1.0, 2.0, 3.0], "faster-whisper": [3.0]},
        "other_tokens": {"faster-whisper": 0.01},
        "beams": 1,
    }
    lost = {
        **case,
        "beams": 5,
        "seconds": {"qkv": [2.0]},
        "other_tokens": {},
        "failed": {"faster-whisper": "not there"},
    }
    shown = table({"cases": [case, lost]})
    assert "| greedy | fp32 | qkv | 90 | | |" in shown
    assert "| greedy | fp32 | faster-whisper, 1% other tokens | 60 | 1.50 | ≥ 1.2: reached |" in shown
    assert "| 5 beams | fp32 | faster-whisper: not there | | | |" in shown


def test_mistakes_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--peer", "other=python"], ["--rounds", "0"]):
        with pytest.raises(SystemExit):
            main(words)
    assert "a name of qkv, faster-whisper" in capsys.readouterr().err
