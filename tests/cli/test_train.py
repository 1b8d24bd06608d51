"""The commands `qkv train` and `qkv demo`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from run_tiny import TINY

from qkv.cli import main
from qkv.training.step import Stepper

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_train_and_repeat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = [text for text in TINY if not text.startswith("training.max_steps")]
    assert (
        main(["train", "reverse", *small, "--max-steps", "2", "--seed", "3", "--max-time", "5m", "--no-compile"]) == 0
    )
    printed = capsys.readouterr().out
    assert "exact match" in printed and "reference" in printed and "runs/reverse/report.html" in printed
    saved = (tmp_path / "runs/reverse/recipe.yaml").read_text()
    assert "seed: 3" in saved and "max_time: 300.0" in saved
    assert main(["train", "reverse", *small]) == 2
    assert "continue it with --resume, replace it with --overwrite" in capsys.readouterr().err
    assert main(["train", "runs/reverse", "--resume", "training.max_steps=3"]) == 0
    assert "Resumed after step 2" in capsys.readouterr().out


def test_ctrl_c_saves_and_says_how_to_continue(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    take, calls = Stepper.take, iter(range(1000))

    def interrupted(self: Any, *args: Any, **options: Any) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return take(self, *args, **options)

    monkeypatch.setattr(Stepper, "take", interrupted)
    assert main(["train", "reverse", *TINY, "--out", "run"]) == 130
    said = capsys.readouterr()
    assert "Continue with: qkv train run --resume" in said.out and "interrupted" in said.err
    assert main(["train", "run", "--resume"]) == 0
    assert "Resumed after step 2" in capsys.readouterr().out


def test_demo_twice(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.cli.train.DEMO", "reverse")
    assert main(["demo", *TINY]) == 0
    before = (tmp_path / "runs/reverse/model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert "The demo is finished: the run is in runs/reverse;" in said and "--overwrite" in said and "--resume" in said
    assert (tmp_path / "runs/reverse/model.safetensors").stat().st_mtime_ns == before
    (tmp_path / "runs/reverse/evaluation.json").unlink()
    assert main(["demo", *TINY]) == 2
    assert "an unfinished run; continue it with --resume" in capsys.readouterr().err


def test_a_bare_number_of_a_time_is_seconds_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "reverse", *TINY, "--max-time", "65", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "Training stops after 1m05s at the latest." in " ".join((said.out + said.err).split())
    assert main(["train", "--help"]) == 0
    assert "or a number of seconds" in " ".join(capsys.readouterr().out.replace("│", " ").split())
