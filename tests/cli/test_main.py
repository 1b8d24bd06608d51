"""The whole command line in one process: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_tiny import TINY

from qkv.cli import main
from qkv.training.step import Stepper

pytestmark = pytest.mark.usefixtures("elsewhere")


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


# -- mistakes: one sentence, status 2, nothing written -------------------------------------------------------------

MISTAKES = {
    "trian": "did you mean 'train'",
    "train": "missing argument 'RECIPE'",
    "train nosuch": "no recipe 'nosuch'; there is: ",
    "train localize": "did you mean 'localise'",
    "train reverse --devise cpu": "--devise",
    "train reverse --device gpu": "there is no device 'gpu'",
    "train reverse --device cuda:77": "CUDA device",
    "train reverse --precision fp8": "'bf16'",
    "train reverse training.compile=always": "it is true, false or auto, not 'always'",
    "train reverse --max-time 10x": "10x",
    "train reverse --max-steps 0": "max_steps",
    "train reverse --seed -1": "seed",
    "train reverse --resume --overwrite": "give one of them",
    "train reverse model.d_model=63": "does not divide",
    "train reverse model.dropout=-1": "dropout",
    "train reverse generation.num_beams=0": "num_beams",
    "train reverse data.longst=3": "did you mean 'data.longest'",
    "train reverse 60": "key=value",
    "train reverse model.preset=gpt model.placement=pre model.replace={}": "placement",
    "train reverse model.preset=gpt model.d_ff=32 model.replace={}": "needs an encoder–decoder, which reads second texts",
    "train no.yaml": "there is no recipe file no.yaml",
    "train translate": "no training data",
    "train translate data.source=no.en data.target=no.de": "there is no file 'no.en'",
    "train translate data.source=three.txt data.target=two.txt": "3 lines but 'two.txt' has 2",
    "train translate data.source=bad.txt data.target=bad.txt": "bad.txt', line 2, is not valid UTF-8",
    "train translate data.source=empty.txt data.target=empty.txt": "'empty.txt' is empty",
    "train lm data.path=no-folder": "there is no file or folder 'no-folder'",
    "train lm data.path=text.txt model.max_positions=100": "longer than the model's context of 100",
    "eval no-run": "there is no run directory no-run",
    "predict no-run x": "there is no run directory no-run",
    "predict no-run x --threshold high": "--threshold",
    "generate no-run x": "there is no run directory",
    "translate three.txt x": "three.txt is a file",
    "list": "list what?",
    "list recipe": "did you mean 'recipes'",
    "show gpt3": "did you mean 'gpt'",
    "show gpt2 --data": "--data is for recipes",
    "show gpt2 n_laers=3": "did you mean 'n_layers'",
    "cost gpt3": "did you mean 'gpt'",
    "cost gpt2 n_laers=3": "did you mean 'n_layers'",
    "cost gpt2 --length 2000": "longer than the model's context of 1024",
    "cost reverse --rows 0": "--rows is a number of at least 1",
    "cost reverse --device tpu": "there is no device 'tpu'",
}


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=pytest.mark.lab) if line.startswith("cost") else line for line in sorted(MISTAKES)],
)
def test_a_mistake_is_one_sentence(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    (tmp_path / "two.txt").write_text("a\nb\n")
    (tmp_path / "bad.txt").write_bytes(b"good\nb\xffd\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "text.txt").write_text("words and words\n" * 500)
    assert main(line.split()) == 2
    said = capsys.readouterr().err.strip()
    assert MISTAKES[line].lower() in said.lower()
    *warnings, mistake = said.splitlines()
    assert mistake.startswith("qkv: ") and "Traceback" not in said
    assert all(one.startswith("qkv: warning: ") for one in warnings) and len({*warnings}) == len(warnings) <= 1
    assert not (tmp_path / "runs").exists()


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QKV_DEBUG", "1")
    assert main(["show", "gpt3"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ValueError("two\n lines"), 2, "two lines"),
        (OSError(28, "No space left on device", "x/model"), 2, "x/model: the disk is full"),
        (
            OSError(27, "File too large", "x"),
            2,
            "x: the file is larger than this shell (ulimit -f) or file system allows",
        ),
        (PermissionError(13, "Permission denied", "x"), 2, "x: permission denied"),
        (OSError("the checkpoint is lost"), 2, "the checkpoint is lost"),
        (MemoryError(), 2, "out of memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("Symlink loop from '/a/b'"), 2, "'/a/b' is a link that leads back to itself"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), 2, "bytes that are not UTF-8"),
        (TypeError("oh"), 1, "a bug in qkv"),
    ],
)
def test_every_exception_has_its_sentence_and_status(
    error: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr("qkv.cli.errors.imported", [])  # other tests of this process may have imported modules
    monkeypatch.setattr("qkv.runs.recipes.recipe.Recipe.load", failing)
    assert main(["train", "reverse"]) == status
    assert said in capsys.readouterr().err


def test_an_interruption_before_the_command_begins_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.main.get_command", interrupted)
    assert main(["list", "recipes"]) == 130
    assert capsys.readouterr().err == "qkv: interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps a working directory")
def test_a_working_directory_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["convert", "../none", "out"]) == 2
    assert "the working directory no longer exists" in capsys.readouterr().err


# -- work -------------------------------------------------------------------------------------------------------


def test_train_and_repeat(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = [text for text in TINY if not text.startswith("training.max_steps")]
    assert (
        main(["train", "reverse", *small, "--max-steps", "2", "--seed", "3", "--max-time", "5m", "--no-compile"]) == 0
    )
    printed = capsys.readouterr().out
    assert "exact match" in printed and "reference" in printed and "runs/reverse/report.html" in printed
    saved = (tmp_path / "runs/reverse/recipe.yaml").read_text()
    assert "seed: 3" in saved and "max_time: 300.0" in saved
    assert main(["train", "reverse", *small]) == 2
    assert "continue it with --resume, replace it with --overwrite" in capsys.readouterr().err
    assert main(["train", "runs/reverse", "--resume", "training.max_steps=3"]) == 0
    assert "Resumed after step 2" in capsys.readouterr().out


def test_ctrl_c_saves_and_says_how_to_continue(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    take, calls = Stepper.take, iter(range(1000))

    def interrupted(self: Any, *args: Any, **options: Any) -> Any:
        if next(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return take(self, *args, **options)

    monkeypatch.setattr(Stepper, "take", interrupted)
    assert main(["train", "reverse", *TINY, "--out", "run"]) == 130
    said = capsys.readouterr()
    assert "Continue with: qkv train run --resume" in said.out and "interrupted" in said.err
    assert main(["train", "run", "--resume"]) == 0
    assert "Resumed after step 2" in capsys.readouterr().out


def test_demo_twice(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qkv.cli.train.DEMO", "reverse")
    assert main(["demo", *TINY]) == 0
    before = (tmp_path / "runs/reverse/model.safetensors").stat().st_mtime_ns
    capsys.readouterr()
    assert main(["demo"]) == 0
    said = capsys.readouterr().out
    assert "The demo is finished: the run is in runs/reverse;" in said and "--overwrite" in said and "--resume" in said
    assert (tmp_path / "runs/reverse/model.safetensors").stat().st_mtime_ns == before
    (tmp_path / "runs/reverse/evaluation.json").unlink()
    assert main(["demo", *TINY]) == 2
    assert "an unfinished run; continue it with --resume" in capsys.readouterr().err


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


def test_options_of_generation(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_score_pairs(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained)
    assert main(["score", run, "a b\tb a"]) == 0
    tab = capsys.readouterr().out
    assert main(["score", run, "a b", "--target", "b a"]) == 0
    assert capsys.readouterr().out == tab
    assert "</s>:" in tab and "perplexity" in tab and tab.splitlines()[-1].startswith("all: ")
    assert main(["score", run, "a b"]) == 2
    assert "is not SOURCE<tab>TARGET" in capsys.readouterr().err
    assert main(["score", run, "a", "b", "--target", "x"]) == 2
    assert "2 texts and 1 targets" in capsys.readouterr().err


def test_embed(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(trained)
    assert main(["embed", run, "a b", "c"]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["embed", run, "a b", "c", "--out", "x.npy"]) == 0
    assert np.load(tmp_path / "x.npy") == pytest.approx(np.array(printed), abs=1e-6)
    assert main(["embed", run, "a b", "c", "--out", "y.npy", "--pooling", "none"]) == 0
    assert capsys.readouterr().out.split() == ["3", "2"]
    assert np.load(tmp_path / "y.npy").shape == (5, 16)
    assert main(["embed", run, "a b", "c", "--out", "z.npy", "--normalize", "--pooling", "weighted-mean"]) == 0
    assert np.linalg.norm(np.load(tmp_path / "z.npy"), axis=1) == pytest.approx(1, abs=1e-6)
    assert main(["embed", run, "a", "--prompt", "query"]) == 2
    assert "has no prompt 'query'; it has no prompts" in capsys.readouterr().err
    assert main(["embed", run, "a", "--pooling", "maximal"]) == 2
    assert main(["embed", run, "a", "--out", "x.doc"]) == 2


def test_eval(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(trained), "--json", "--max-examples", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["examples"], found["available"]) == (7, 20) and found["metrics"]["loss"] > 0
    assert main(["eval", str(trained), "--max-examples", "7"]) == 0
    said = capsys.readouterr().out
    assert "test, 7 of 20 examples" in said and "--max-examples all" in said
    assert main(["eval", str(trained), "--max-examples", "all"]) == 0
    said = capsys.readouterr().out
    assert "test, 20 examples" in said and "--max-examples" not in said
    for wrong in ("0", "-3", "some", "1.5"):
        assert main(["eval", str(trained), "--max-examples", wrong]) == 2
        assert "--max-examples is `all` or a number of at least 1" in capsys.readouterr().err
    assert main(["eval", str(trained), "--data", "validation", "--data", "longest=5", "--num-beams", "2"]) == 0
    assert "validation, 20 examples" in capsys.readouterr().out
    assert main(["eval", str(trained), "--data", "validatoin"]) == 2
    assert "did you mean 'validation'" in capsys.readouterr().err


def test_a_bare_number_of_a_time_is_seconds_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "reverse", *TINY, "--max-time", "65", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert "Training stops after 1m05s at the latest." in " ".join((said.out + said.err).split())
    assert main(["train", "--help"]) == 0
    assert "or a number of seconds" in " ".join(capsys.readouterr().out.replace("│", " ").split())
