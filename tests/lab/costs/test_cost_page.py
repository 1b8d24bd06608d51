"""docs/cost.md: its commands run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from run_tiny import TINY

from qkv.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "cost.md"
COMMANDS = [
    shlex.split(line, comments=True)[1:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_the_commands_of_the_page(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    of_data = [*(text for text in TINY if not text.startswith("data.l")), "data.languages=[de]"]
    small = of_data if argv[1] == "localise" else ["n_layers=1"]
    assert main([*argv[:2], *small, *argv[2:]]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out
