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
def test_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_pages_and_notebooks_never_come_among_other_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").write_text("task: {}\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("<title>My own page</title>")
    for option in ("--html", "--notebooks"):
        assert main(["tour", option, str(tmp_path / "run")]) == 2
        assert "is a run, and no other files are written into it" in capsys.readouterr().err
        assert main(["tour", option, str(tmp_path / "site")]) == 2
        assert "index.html is not one of the tour's" in capsys.readouterr().err
    assert (tmp_path / "site" / "index.html").read_text() == "<title>My own page</title>"
    assert len(list(tmp_path.rglob("*"))) == 4


def test_a_notebook_that_was_changed_is_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = ["tour", "heads", "--notebooks", str(tmp_path / "a")]
    assert main(command) == 0 and main(command) == 0
    notebook = tmp_path / "a" / "04-heads.ipynb"
    notebook.write_text(changed := notebook.read_text() + "\n")
    assert main(["tour", "--notebooks", str(tmp_path / "a")]) == 2
    assert "has been changed, and is kept; choose another directory" in capsys.readouterr().err
    assert notebook.read_text() == changed and len(list((tmp_path / "a").iterdir())) == 1
