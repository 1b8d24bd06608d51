"""`qkv tune`: the best settings are printed as a command, or JSON; mistakes are one sentence; the page's commands run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from fast_subset import fast

from qkv.cli import main

TINY = shlex.split(
    "model.d_model=16 model.n_layers=1 model.d_ff=16 model.n_heads=2 data.train=60 data.validation=8 data.test=8 "
    "data.languages=[de] tokenizer.vocab_size=300 batching.tokens=512 batching.workers=0 "
    "training.max_steps=2 training.eval_every=1 "
    "training.save_every=null evaluation.examples=4 generation.max_new_tokens=2 training.precision=fp32"
)
PAGE = (Path(__file__).parents[3] / "docs" / "tuning.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [shlex.split(line)[1:] for block in BLOCKS for line in block.splitlines() if line.startswith("qkv ")]


@pytest.mark.parametrize("argv", fast(COMMANDS, COMMANDS[0]), ids=" ".join)
def test_the_commands_of_the_page_run(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = [*argv, "--trials", "2"]
    assert main([*few[:2], *TINY, *few[2:]]) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "Best: trial" in printed and "qkv train localise" in printed and "report.html" in printed
    assert main([*few[:2], *TINY, *few[2:], "--resume", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["trials"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "declares no space"),
        ("--space training.optimizer.lr=0.1,0.2 --pruner mean", "--pruner is median, hyperband or none, not 'mean'"),
        ("--space training.optimizer.lr=0.1,0.2 --sampler grid", "--sampler is tpe or random"),
        ("--space n_heads=1,2 --resume --overwrite", "give one of them"),
        ("--space training.optimizer.lr=0.1,0.2 --max-time soon", "is not a duration"),
    ],
)
def test_mistakes_are_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "localise", *TINY, *words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
