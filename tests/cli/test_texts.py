"""What the commands for texts have in common: blank ones, and those that were meant as settings."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_untrained import bert, of, words

from qkv.cli import main
from qkv.cli.texts import each
from qkv.nn.models.heads.sequence import SequenceClassifier
from qkv.nn.models.heads.text import TokenClassifier


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    of("transformer", words(), "translate").save(folder / "translator", "qkv")
    of("gpt2", words(TEMPLATE), "continue").save(folder / "assistant", "qkv")
    of("bert-base", words(), "read", max_positions=32).save(folder / "masked", "qkv")
    bert(SequenceClassifier(labels=2)).save(folder / "classifier", "qkv")
    bert(TokenClassifier(labels=3)).save(folder / "tagger", "qkv")
    return folder


TEMPLATE = "{% for m in messages %}{{ m.content }}{% generation %}{% endgeneration %}{% endfor %}"
SHORT = ["--max-new-tokens", "2"]
COMMANDS: dict[str, tuple[str, list[str], str]] = {  # the run, options, and a text
    "generate": ("assistant", SHORT, "ab"),
    "translate": ("translator", SHORT, "ab"),
    "chat": ("assistant", SHORT, "ab"),
    "score": ("translator", [], "ab\tba"),
    "embed": ("masked", [], "ab"),
    "classify": ("classifier", [], "ab"),
    "fill": ("masked", [], "a<mask>"),
    "predict": ("tagger", [], "ab"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_blank_line_gives_a_blank_line(
    command: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, options, text = COMMANDS[command]
    json_option = [] if command == "embed" else ["--json"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{text}\n \n\n{text}\n".encode())))
    assert main([command, str(runs / run), *options, *json_option]) == 0
    printed = capsys.readouterr()
    told: list[Any] = [json.loads(line, parse_constant=pytest.fail) for line in printed.out.splitlines()]
    assert len(told) == 4 and not printed.err
    for blank in told[1:3]:
        answers = blank.items() if blank else ()
        assert all(not value for name, value in answers if name not in ("text", "input", "message"))
    assert told[0] and told[3]
    if command not in ("embed", "chat"):  # whose outputs may hold anything
        assert main([command, str(runs / run), *options, text, " ", text]) == 0
        lines = capsys.readouterr().out.split("\n")
        assert lines[1] == "" and lines[0] == lines[2]


def test_blank_texts_in_an_array(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "x.npy")
    assert main(["embed", str(runs / "masked"), "ab", " ", "b", "--out", out]) == 0
    found = np.load(out)
    assert found.shape[0] == 3 and np.isnan(found).all(-1).tolist() == [False, True, False]
    assert main(["embed", str(runs / "masked"), "ab", " ", "b", "--out", out, "--pooling", "none", "--overwrite"]) == 0
    lengths = [int(length) for length in capsys.readouterr().out.split()]
    assert lengths[1] == 0 and np.load(out).shape[0] == sum(lengths)
    assert main(["embed", str(runs / "masked"), " ", "--out", out]) == 2
    assert main(["embed", str(runs / "masked"), "a", "--out", str(tmp_path / "no/x.npy")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("setting", ["generation.cache=int8", "num_beams=4", "model.d_model=8"])
def test_a_text_that_was_meant_as_a_setting_is_noted(
    command: str, setting: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, options, text = COMMANDS[command]
    more = text.removeprefix("a").removeprefix("b")  # what this command needs in a text
    given = f"{setting}{more}"
    assert main([command, str(runs / run), *options, text, given]) == 0
    said = capsys.readouterr().err
    assert said.startswith("qkv: warning: ") and "is read as a text, though it looks like a setting" in said
    assert len(said.splitlines()) == 1
    if command in ("generate", "translate", "chat"):
        assert "--set KEY=VALUE" in said
    assert main([command, str(runs / run), *options, text, f"x = 3{more}", f"self.a=3{more}"]) == 0
    assert not capsys.readouterr().err


def test_settings_are_given_by_set(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(runs / "assistant")
    assert main(["generate", run, "ab", "--set", "max_new_tokens=3", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["outputs"][0]["tokens"]) == 3
    assert main(["generate", run, "ab", "--set", "generation.cache=int8", *SHORT]) == 0
    assert main(["chat", run, "ab", "--set", "max_new_tokens=1", "--set", "cache=int8"]) == 0
    assert main(["generate", run, "ab", "--set", "cache=h2o", *SHORT]) == 0
    assert main(["generate", run, "ab", "--set", 'cache={"kind":"snapkv","tokens":40}', *SHORT]) == 0
    assert main(["translate", str(runs / "translator"), "ab", "--set", "num_beams=2", *SHORT]) == 0
    capsys.readouterr()
    for wrong, said in (
        (["--set", "cash=int8"], "did you mean 'cache'"),
        (["--set", "cache"], "write key=value"),
        (["--set", "max_new_tokens=3", *SHORT], "max_new_tokens is given twice"),
        (["--set", "num_beams=0"], "num_beams"),
    ):
        assert main(["generate", run, "ab", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_a_model_that_answers_is_scored_on_pairs(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of("gpt2", words(), "answer").save(tmp_path / "answers", "qkv")
    assert main(["score", str(tmp_path / "answers"), "a", "--target", "b", "--target", "ba", "--json"]) == 0
    one, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["text"], two["text"]) == ("a\tb", "a\tba") and len(one["tokens"]) < len(two["tokens"])
    assert main(["score", str(runs / "assistant"), "a", "--target", "b"]) == 2
    assert "scores the TEXT itself" in capsys.readouterr().err


def test_what_has_no_probability_is_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One token without one before it: nothing predicts it, and its perplexity is no number."""
    run = of("gpt2", words().without("bos"), "continue")
    run.save(tmp_path / "lm", "qkv")
    assert main(["score", str(tmp_path / "lm"), "a", "--json"]) == 0
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (said["perplexity"], said["log_probs"]) == (None, [])
    assert main(["score", str(tmp_path / "lm"), "a"]) == 0
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize("command, bad", [("fill", "ab"), ("fill", "a<mask>" * 40), ("embed", "ab " * 60)])
def test_a_line_that_cannot_be_answered_is_named_and_the_others_are_answered(
    command: str, bad: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, options, text = COMMANDS[command]
    lines = f"{text}\n\n{bad}\n{text}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main([command, str(runs / run), *options]) == 0
    told = capsys.readouterr()
    assert "warning: line 3, 'a" in told.err and "is not answered: " in told.err
    first, blank, left, last = told.out.splitlines()
    assert first == last and blank == left and first != blank
    assert main([command, str(runs / run), *options, text, "", bad, text]) == 2
    told = capsys.readouterr()
    assert "text 3, 'a" in told.err and not told.out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{bad}\n\n".encode())))
    assert main([command, str(runs / run), *options]) == 2
    assert "no line of standard input could be answered" in capsys.readouterr().err


def test_the_message_on_a_file_calls_it_a_file() -> None:
    def answer(names: list[str]) -> list[str]:
        raise ValueError(f"there is no file {names[0]!r}")

    with pytest.raises(ValueError, match=r"^file 1, 'a\.png': there is no file 'a\.png'$"):
        list(each(["a.png"], answer, noun="file"))


def test_a_table_that_is_not_there_is_an_error_and_no_text(
    trained_lm: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", str(trained_lm), "nofile.csv"]) == 2
    assert "there is no file 'nofile.csv'; correct the name" in capsys.readouterr().err
    for name in ("nofile.xlsx", "nofile.feather", "a/b.csv.gz", "nofile.png", "nofile.PKL", "nofile.mp3", "no.epub"):
        assert main(["generate", str(trained_lm), name]) == 2
        assert f"there is no file '{name}'" in capsys.readouterr().err
    assert main(["generate", str(trained_lm), "a.word", "--max-new-tokens", "1"]) == 0
    monkeypatch.chdir(tmp_path)
    Path("word").touch()  # an empty file, which has no kind
    assert main(["generate", str(trained_lm), "word", "--max-new-tokens", "1"]) == 0
    assert "'word' is read as a text, though there is a file of that name" in capsys.readouterr().err
