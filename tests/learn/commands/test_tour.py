"""`qkv tour` lists, walks, and writes pages and notebooks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_the_list_names_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour"]) == 0
    assert "FlashAttention" in capsys.readouterr().out
    assert main(["tour", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1]["name"] == "02-dictionary"


def test_one_notebook_and_all_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tour", "heads", "--notebooks", str(tmp_path / "a")]) == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["04-heads.ipynb"]
    assert main(["tour", "--html", str(tmp_path / "b")]) == 0
    assert "index.html; open it in a browser." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["tour", "0"], "has no page '0'"), (["tour", "1", "--html", "x"], "leave PAGE out")],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
