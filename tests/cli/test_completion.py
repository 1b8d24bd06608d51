"""Shell completion, as the shell asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qkv.cli import completion, main

ASK = """
source <(qkv --print-completion bash)
compopt() { :; }  # there is no completion to change the options of
complete() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _qkv_completion qkv; echo "${COMPREPLY[*]}"; }
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_options_recipes_and_lists(tmp_path: Path) -> None:
    command = tmp_path / "bin" / "qkv"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qkv "$@"\n')
    command.chmod(0o755)
    (tmp_path / "local-recipe.yaml").touch()
    settings = ["training.opt", "training.optimizer =", "training.optimizer = ada", "data.kind = images data.c"]
    lines = [f"qkv train lm {setting}" for setting in settings]
    lines += ["qkv tr", "qkv train loc", "qkv train localise --max-", "qkv train reverse --device c", "qkv list pat"]
    result = subprocess.run(
        ["bash", "-c", ASK + "\n".join(f"complete {line}" for line in lines)],
        env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["training.optimizer=", "training.optimizer."],
        ["adafactor", "adagrad", "adamw", "adamw-8bit", "lion", "muon", "sgd"],
        ["adafactor", "adagrad", "adamw", "adamw-8bit"],
        ["data.color=", "data.cache="],
        ["train", "transcribe", "translate"],
        ["localise", "local-recipe.yaml"],
        ["--max-time", "--max-steps", "--max-epochs"],
        ["cpu", "cuda"],
        ["patterns"],
    ]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_of_each_shell_asks_qkv(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", shell]) == 0
    assert f"_QKV_COMPLETE=complete_{shell}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shell", "path"),
    [
        ("bash", ".bash_completions/qkv.sh"),
        ("zsh", ".zfunc/_qkv"),
        ("fish", ".config/fish/completions/qkv.fish"),
    ],
)
def test_installing_writes_the_script_where_the_shell_looks(
    shell: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["--print-completion", shell]) == 0
    script = capsys.readouterr().out
    for _ in range(2):  # a second time changes nothing
        assert main(["--install-completion", shell]) == 0
        assert capsys.readouterr().out == f"Wrote {tmp_path / path}; start a new {shell} to use it.\n"
        assert (tmp_path / path).read_text(encoding="utf-8") == script
    if shell == "bash":
        assert (tmp_path / ".bashrc").read_text(encoding="utf-8").count("source ") == 1
        assert "compopt -o nospace" in script


@pytest.mark.parametrize("option", ["--print-completion", "--install-completion"])
def test_an_unknown_shell_is_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "tcsh"]) == 2
    assert "no completion for the shell 'tcsh'; give one of bash, zsh, fish" in capsys.readouterr().err


def test_presets_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine.yml").touch()
    (tmp_path / "runs" / "mine.txt").touch()
    monkeypatch.chdir(tmp_path)
    assert completion.recipes_and_presets("gpt2-") == ["gpt2-large", "gpt2-medium", "gpt2-xl"]
    assert completion.recipes("ru") == ["runs"]
    assert completion.recipes("runs/m") == ["runs/mine", "runs/mine.yml"]
    assert completion.recipes(f"{tmp_path}/r") == [f"{tmp_path}/runs"]
    assert completion.recipes("nowhere/") == completion.recipes("~nobody-of-that-name/") == []
