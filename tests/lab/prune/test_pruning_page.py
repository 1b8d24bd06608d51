"""docs/pruning.md: its commands run, on a small translator."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from run_tiny import TINY

from qkv.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "pruning.md"


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in "".join(blocks).splitlines():
        _, *argv = shlex.split(line, comments=True)
        if argv[0] == "train":
            argv += [*(text for text in TINY if not text.startswith("data.l")), "data.languages=[de]"]
        argv = ["2" if argument == "2m" else argument for argument in argv]  # steps in place of minutes
        argv += ["--examples", "16", "--no-curve"] if argv[0] == "prune" else []
        assert main(argv) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
    assert all((tmp_path / "runs" / name / "pruning.html").exists() for name in ("pruned", "low-rank"))
