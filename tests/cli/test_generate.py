"""The commands `qkv generate` and `qkv translate`."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_translate_lines_of_standard_input(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["translate", str(trained), "a b", "c"]) == 0
    given = capsys.readouterr().out
    feed(monkeypatch, b"a b\r\n\nc")
    assert main(["translate", str(trained)]) == 0
    read = capsys.readouterr().out.split("\n")
    assert read == [given.split("\n")[0], "", *given.split("\n")[1:]]
    feed(monkeypatch, b"a\n\xff\n")
    assert main(["translate", str(trained)]) == 2
    assert "standard input, line 2 is not UTF-8" in capsys.readouterr().err


def test_options_of_generation_change_number_order_and_form_of_outputs(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(trained)
    assert main(["generate", run, "a b", "--num-beams", "2", "--num-samples", "2", "--scores"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2 and float(lines[0][0]) >= float(lines[1][0])
    assert main(["generate", run, "a b", "c", "--json", "--temperature", "1.5", "--seed", "1"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["text"], second["text"]) == ("a b", "c")
    assert len(first["outputs"][0]["tokens"]) == len(first["outputs"][0]["log_probs"])
    assert main(["generate", run, "a b"]) == main(["generate", run, "a b", "--stream"]) == 0
    plain, streamed = capsys.readouterr().out.splitlines()
    assert plain == streamed
    for options, said in (
        (["--num-beams", "0"], "num_beams"),
        (["--top-p", "2"], "top_p"),
        (["--stream", "--json"], "--stream"),
        (["--num-beams", "2", "--temperature", "1"], "beam search"),
        (["--device", "gpu"], "no device 'gpu'"),
    ):
        assert main(["generate", run, "a", *options]) == 2
        assert said in capsys.readouterr().err


def test_speculative_decoding(
    trained: Path, trained_lm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outputs stay the same, and what was accepted is shown."""
    for run, command in ((str(trained_lm), "generate"), (str(trained), "translate")):
        texts = [command, run, "the cat is the cat", "a b", "--max-new-tokens", "12"]
        assert main(texts) == 0
        plain = capsys.readouterr().out
        for options in (["--speculate", "lookup"], ["--draft", run], ["--draft", run, "--stream"]):
            assert main([*texts, *options, "--verbose"]) == 0
            out, err = capsys.readouterr()
            assert out == plain
            assert "proposed tokens accepted" in err and "tokens in each pass of the model" in err
            assert "first token after" in err and "tokens/s" in err and "after the start of the process" in err
        assert main([*texts, "--draft", run, "--json"]) == 0
        (output,) = json.loads(capsys.readouterr().out.splitlines()[0])["outputs"]
        assert set(output["acceptance"]) == {"passes", "proposed", "accepted"}
    assert main([*texts, "--verbose"]) == 0
    assert "no speculative decoding; choose it with --speculate or --draft" in capsys.readouterr().err
    other = shutil.copytree(trained_lm, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    last, before = sorted(vocab, key=vocab.get)[-1:-3:-1]
    vocab[last], vocab[before] = vocab[before], vocab[last]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    for options, message in (
        (["--draft", str(other)], "has another tokenizer than"),
        (["--draft", str(trained)], "has another tokenizer than"),
        (["--draft", str(trained_lm), "--num-beams", "2"], "not for a beam search"),
        (["--draft", str(trained_lm), "--speculate", "lookup"], "uses no draft model"),
        (["--speculate", "draft"], "there is no draft model; give one (draft=…, --draft RUN)"),
        (["--speculate", "early-exit:9"], "early exit after 9 of 1 decoder layers"),
        (["--speculate", "luck"], "there is no speculation 'luck'"),
        (["--speculate", "lookup", "--set", "cache=sinks"], "which the cache 'sinks' can't do"),
        (["--draft", "nowhere"], "there is no run directory"),
    ):
        assert main(["generate", str(trained_lm), "the cat", *options]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1, error


def test_a_language_model_generates_and_does_not_translate(
    trained_lm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(trained_lm)
    assert main(["generate", run, "the cat"]) == 0
    capsys.readouterr()
    assert main(["translate", run, "the cat"]) == 2
    assert "use `qkv generate`" in capsys.readouterr().err
    assert main(["generate", run, "the cat " * 400]) == 2
    assert "context of 256" in capsys.readouterr().err
    assert main(["score", run, "the cat is", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["log_likelihood"] == pytest.approx(sum(found["log_probs"]))
    assert main(["score", run, "the cat is", "--target", "x"]) == 2
