"""What the commands of studies share: one of two options, and the way on after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.commands.studies import interrupted, resume_or_overwrite


def test_resume_and_overwrite_exclude_each_other() -> None:
    resume_or_overwrite(True, False, "a tuning")
    resume_or_overwrite(False, True, "a tuning")
    with pytest.raises(ValueError, match="--resume continues a tuning and --overwrite replaces it; give one of them"):
        resume_or_overwrite(True, True, "a tuning")


def test_an_interruption_says_how_to_continue(capsys: pytest.CaptureFixture[str]) -> None:
    assert interrupted("tuning", Path("runs/a")) == 130
    assert "the tuning is in runs/a. Continue with the same command and --resume." in capsys.readouterr().err
