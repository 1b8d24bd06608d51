"""`qkv explain`: the list, a worked example, a page, JSON, a run, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_untrained import of, words

from qkv.cli import main
from qkv.learn.explain.registry import explain

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_list_example_page_and_json(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["explain"]) == 0
    assert "kv-cache" in capsys.readouterr().out
    assert main(["explain", "--json"]) == 0
    assert "attention" in json.loads(capsys.readouterr().out)
    assert main(["explain", "attention"]) == 0
    out = capsys.readouterr().out
    assert "5.9242" in out and "10.3864" in out
    assert main(["explain", "attention", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "attention"
    assert main(["explain", "mask", "--out", str(tmp_path / "mask.html")]) == 0
    assert "<!doctype html>" in (tmp_path / "mask.html").read_text(encoding="utf-8")


def test_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    of("gpt2", words(), "continue", max_positions=32).save(tmp_path / "run", "qkv")
    assert main(["explain", "attention", "--run", str(tmp_path / "run"), "--text", "abc", "--head", "1"]) == 0
    out = capsys.readouterr().out
    assert "layer 0, head 1" in out and "weights of all queries" in out
    assert main(["explain", "moe", "--run", str(tmp_path / "run"), "--text", "abc"]) == 2
    assert "does not have a mixture of experts, which moe explains; explain attention" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "teacher forcing",
            ["run     qkv tour encoder-decoder", "expect  six predictions, at once and one by one: True"],
        ),
        (
            "Elbow",
            ["The elbow (elbow, elbow threshold,", "yours   qkv prune RUN --until 5%", "more    docs/pruning.md"],
        ),
    ],
)
def test_a_word_without_an_explanation_is_answered_with_its_place(
    words: str, said: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(["explain", *words.split()]) == 0
    out, err = capsys.readouterr()
    assert all(text in out for text in said) and not err
    assert main(["explain", *words.split(), "--json"]) == 0
    place = json.loads(capsys.readouterr().out)
    assert place["run"].startswith("qkv ") and place["expect"] and place["section"]


def test_a_word_of_an_explanation_shows_it_and_says_where_it_is_taught(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "RoPE"]) == 0
    out, err = capsys.readouterr()
    assert "Positions: how attention learns the order" in out
    assert err.startswith("RoPE: Rotary positions; learn: qkv tour positions; run: qkv explain position; expect: ")
    assert explain("rope") == explain("position")


@pytest.mark.parametrize("name", ["attention", "kv-cache", "bpe"])
def test_a_text_without_a_run_is_read_by_the_model_of_the_package(name: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", name, "--text", "The cat sat on the mat.", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "small-english" in err and err.count("\n") == 1
    explained = json.loads(out)
    assert "small-english" in explained["about"] and "The cat sat on the mat." in explained["about"]
    assert "cat" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["attentoin"], "there is no explanation 'attentoin'; did you mean 'attention'"),
        (
            ["zeroo"],
            "there is no explanation 'zeroo'; did you mean 'zero' or 'zero-score'? (also there: attention, mult",
        ),
        (
            ["pruning", "--out", "x.html"],
            "is no computation to explain step by step; `qkv tour pruning` teaches it",
        ),
        (["attention", "--layer", "2"], "--layer needs the text whose numbers are shown; give it as --text TEXT"),
        (["attention", "--text", " "], "--text needs the text whose numbers are shown; give it as --text TEXT"),
        (["--text", "a cat"], "--text needs the name of what to explain, such as `qkv explain attention`"),
        (["attention", "--text", "a cat", "--layer", "9"], "small-english has layers 0 to 3 here"),
        (["cross", "--text", "a cat"], "or run `qkv explain cross` for a worked example"),
        (["attention", "--run", "x"], "--run needs the text whose numbers are shown; give it as --text TEXT"),
        (["attention", "--out", "x.html", "--json"], "--out writes a page and --json prints JSON; give one of them"),
        (["attention", "--out", "x.txt"], "--out is a file that ends in .html, not x.txt"),
        (["attention", "--out", "no/x.html"], "there is no folder no for x.html; create it first"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", *arguments]) == 2
    assert message in capsys.readouterr().err
