"""`qkv look`: the page, one score, exact weights, and mistakes in one sentence."""

from __future__ import annotations

import io
import json
import socket
import sys
from pathlib import Path

import pytest

import qkv
from qkv.cli import look, main
from qkv.runs.inference.run import Run


@pytest.mark.usefixtures("elsewhere")
def test_a_page_is_written_and_what_it_shows_is_printed(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(trained), "a b c", "--target", "c b a"]) == 0
    assert capsys.readouterr().out == "target: c b a\nwritten to look.html\n"
    assert "<!doctype html>" in Path("look.html").read_text(encoding="utf-8")
    assert main(["look", str(trained), "a b", "b a", "--out", "x.svg"]) == 0
    assert Path("x.svg").exists()


@pytest.mark.usefixtures("elsewhere")
def test_the_page_of_a_look_before_is_replaced_and_a_file_of_somebody_else_is_not(
    trained_lm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for said in ("written to look.html\n", "written to look.html, in place of the file that was there\n"):
        assert main(["look", str(trained_lm), "the cat", "--layers", "0"]) == 0
        assert capsys.readouterr().out.endswith(said)
    assert main(["look", str(trained_lm), "the cat", "--out", "look.html"]) == 2  # a name that is given
    for mine in ("<title>my notes</title>", "{}"):
        Path("look.html").write_text(mine)
        assert main(["look", str(trained_lm), "the cat"]) == 2
        assert "look.html already exists; replace it with --overwrite" in capsys.readouterr().err
        assert Path("look.html").read_text() == mine
    Path("look.html").rename("mine.html")
    Path("look.html").symlink_to("mine.html")
    assert main(["look", str(trained_lm), "the cat"]) == 2 and Path("mine.html").read_text() == "{}"
    assert main(["look", str(trained_lm), "the cat", "--json", "--overwrite"]) == 2


@pytest.mark.usefixtures("elsewhere")
def test_one_score_as_text_and_as_json(trained_lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", str(trained_lm), "the cat is old", "--score", "0.1.2.1"]) == 0
    assert "layer 0, head 1:" in capsys.readouterr().out
    assert main(["look", str(trained_lm), "the cat is old", "--score", "decoder.0.1.2.1", "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert main(["look", str(trained_lm), "the cat is old", "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["views"][0]["attention"][0]["layers"]
    assert layers[0]["weights"][1][2][1] == pytest.approx(score["weight"], abs=1e-6)
    assert not Path("look.html").exists()


@pytest.mark.usefixtures("elsewhere")
def test_lines_of_standard_input(trained_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n\nthe dog\n"))
    assert main(["look", str(trained_lm), "--out", "p.json"]) == 0
    assert [view["text"] for view in json.loads(Path("p.json").read_text())["views"]] == ["the cat", "the dog"]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "words", [["The cat sat."], ["The cat sat.", "A dog ran/jumped."], ["--generate", "2", "The cat sat."]]
)
def test_a_text_in_place_of_a_run_is_read_by_the_model_of_the_package(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["look", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    page = json.loads(out)
    assert page["title"] == "small-english" and "small-english" in err and err.count("\n") == 1
    assert [view["text"] for view in page["views"]] == [word for word in words if " " in word]
    labels = page["views"][0]["axes"]["text"]["labels"]
    assert labels[:3] == ["<s>", "The", "▁cat"]
    assert [len(layer["weights"]) for layer in page["views"][0]["attention"][0]["layers"]] == [4] * 4


@pytest.mark.usefixtures("elsewhere")
def test_standard_input_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n"))
    assert main(["look", "--out", "p.json"]) == 0
    assert json.loads(Path("p.json").read_text())["title"] == "small-english"


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("run", ["Hello", "runs/my model", "./the cat", "~/the cat", "/a b/c"])
def test_a_missing_run_is_no_text(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", run, "The cat sat."]) == 2
    said = capsys.readouterr().err
    assert "there is no run directory" in said and "or take small-english, which comes with qkv" in said


@pytest.mark.usefixtures("elsewhere")
def test_a_run_whose_name_has_a_space_is_a_run(trained_lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("my run").symlink_to(trained_lm)
    assert main(["look", "my run", "the cat", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["title"] == "my run" and not err


def test_without_input_the_advice_names_what_the_run_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    sizes = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}
    model = qkv.build(qkv.preset("vit-base-16", image=(8, 8), patch=(2, 2), channels=1, **sizes), seed=0)
    with pytest.raises(
        ValueError, match=r"there is no file to look at; give one, such as qkv look this run picture.png"
    ):
        look._lines(Run(model.eval(), None))


@pytest.mark.usefixtures("elsewhere")
def test_no_text(trained_lm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["look", str(trained_lm)]) == 2
    assert f'there is no text to look at; give one, such as qkv look {trained_lm} "a text"' in capsys.readouterr().err


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["the cat", "--tokens", "9"], "--tokens is START:STOP with START below STOP, such as 10:80, not '9'"),
        (["the cat", "--tokens", "80:90"], "tokens 80:90 hold none of the"),
        (["the cat", "--layers", "a"], "--layers is a list of numbers from 0, such as 0,5, not 'a'"),
        (["the cat", "--heads", "5"], "there is no head 5; the heads of this model are 0 to 1"),
        (["the cat", "--score", "1.2"], "--score is LAYER.HEAD.QUERY.KEY"),
        (["the cat", "--score", "0.0.99.0"], "there is no query 99"),
        (["the cat", "--word", "zebra"], "no tokens on display spell the word 'zebra'"),
        (["the cat", "--target", "x"], "a target is for encoder–decoders"),
        (["the cat", "--out", "no/where.html"], "there is no folder no for where.html; create it first"),
        (["the cat", "--out", "x.gif"], "a figure is saved as .html, .json, .svg, .png or .pdf, not '.gif'"),
        (["the cat", "--json", "--out", "x.html"], "--out writes a file and --json prints; give one of them"),
        (["the cat", "--serve", "--score", "0.0.0.0"], "--serve shows a live page; leave out --score"),
        (["the cat", "--port", "8000"], "--port is an option of the live page; give --serve as well"),
        (["the cat", "the dog", "--patch", "a dog"], "give one input besides the other, not 2"),
        (["  "], "the text is empty, so there is nothing to look at"),
        (
            ["--neuron", "0.1", "--texts", "no.txt"],
            "there is no file no.txt for --texts; give a file with one text a line",
        ),
    ],
)
def test_mistakes_are_one_sentence(
    trained_lm: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["look", str(trained_lm), *arguments]) == 2
    message = capsys.readouterr().err
    assert says in message and "Traceback" not in message


def test_a_port_that_is_taken(trained_lm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["look", str(trained_lm), "the cat", "--serve", "--port", port]) == 2
    assert f"port {port} can't be used" in capsys.readouterr().err


@pytest.mark.usefixtures("elsewhere")
def test_a_word_is_compared_between_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", "--compare", "The colors run in the wash", "They run a shop", "--word", "run"]) == 0
    said = capsys.readouterr().out
    assert (
        "run, cosine between contexts: static 1.000, layer 0 0." in said and "run (1) is moved most by: colors" in said
    )
    assert "How alike run is in its contexts" in Path("look.html").read_text(encoding="utf-8")
    assert main(["look", "--compare", "They run a shop", "He walks home", "--word", "run"]) == 2
    assert "the word 'run' does not occur in 'He walks home'" in capsys.readouterr().err
    assert main(["look", "--compare", "They run a shop", "we run", "--score", "0.0.1.1"]) == 2
    assert "--compare is for a page of several texts; leave out --score" in capsys.readouterr().err
