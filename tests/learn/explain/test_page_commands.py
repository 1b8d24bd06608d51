"""docs/explain.md: its commands run, and its table names every explanation."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from qkv.cli import main
from qkv.learn.explain.registry import EXPLANATIONS

PAGE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    small = {"runs/localise": str(trained), "<de> {{31/07/2025}}": "b a c", "1": "0", "3": "1"}
    for line in block.splitlines():
        _, *argv = shlex.split(line, comments=True)
        argv = [small.get(argument, argument) for argument in argv]
        argv += ["--target", "c a b"] if "--run" in argv else []
        assert main(argv) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
    assert (tmp_path / "flash.html").exists()


def test_the_table_names_every_explanation() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE) == list(EXPLANATIONS)
