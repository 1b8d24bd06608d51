"""The whole command line in one process: what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


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


def test_eval_reads_as_many_examples_as_it_is_told(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_kernels_that_are_compiled_are_told_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    logger, terminal = logging.getLogger("qkv.compiling"), Terminal()
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["--version"]) == 0
    logger.info("compiling decoding.cpp")
    assert terminal.getvalue() == "qkv: compiling decoding.cpp\n"
