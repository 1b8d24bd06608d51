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


def test_a_word_leads_to_its_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tour", "skip", "connection"]) == 0
    out, err = capsys.readouterr()
    assert "6. Blocks" in out and "12 layers with residuals:    1.1e+02" in out
    assert (
        err
        == "skip connection: Residual connection, page 6; run: qkv tour blocks; expect: 12 layers with residuals: 1.1e+02\n"
    )
    assert main(["tour", "blocks", "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_one_notebook_and_all_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tour", "heads", "--notebooks", str(tmp_path / "a")]) == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["04-heads.ipynb"]
    assert main(["tour", "--html", str(tmp_path / "b")]) == 0
    assert "index.html; open it in a browser." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tour", "0"], "has no page '0'"),
        (["tour", "atention"], "did you mean 'attention', 'rnn-attention' or 'mlp-attention'? (also"),
        (["tour", "1", "--html", "x"], "leave PAGE out"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err
