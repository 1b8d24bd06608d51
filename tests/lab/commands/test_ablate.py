"""`qkv ablate`: the table is printed, or JSON, and mistakes are one sentence."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from qkv.cli import main

TINY = shlex.split(
    "model.d_model=16 model.n_layers=1 model.d_ff=16 model.n_heads=2 data.train=60 data.validation=8 data.test=8 "
    "data.languages=[de] tokenizer.vocab_size=300 batching.tokens=512 batching.workers=0 "
    "training.max_steps=2 training.eval_every=null "
    "training.save_every=null evaluation.examples=4 generation.max_new_tokens=2 training.precision=fp32"
)


def test_a_table_then_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["ablate", "localise", *TINY, "--drop", "norm", "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "2 runs: 2 variants × 1 seed" in printed and "without norm, seed 0: Exact match" in printed
    assert main([*command, "--resume", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["label"] for row in rows] == ["baseline", "without norm"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--drop norms", "--drop knows no 'norms'; did you mean 'norm'"),
        ("--vary decoder.positio=rotary,none", "did you mean 'position'"),
        ("--budget epochs", "--budget is steps, tokens, flops or time"),
        ("--resume --overwrite", "give one of them"),
        ("--time soon", "is not a duration"),
    ],
)
def test_mistakes_are_one_sentence(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", "localise", *TINY, *words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
