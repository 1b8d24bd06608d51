"""docs/vectors.md: its commands and its Python run, in the order in which they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from random import Random

import pytest

from qkv.cli import main

PAGE = Path(__file__).parents[3] / "docs" / "vectors.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

# What makes a training a matter of seconds; the width of the vectors stays.
SMALL = [
    *("training.max_steps=2", "training.eval_every=2", "training.save_every=2", "batching.tokens=512"),
    *("evaluation.examples=4", "evaluation.test_examples=4", "evaluation.samples=1", "model.n_layers=1"),
    *("model.n_heads=2", "generation.max_new_tokens=4"),
]


def write_text(folder: Path) -> None:
    random, words = Random(0), ["the", "river", "he", "his", "she", "her", "boat", "bank", "water", "stone"]
    lines = (" ".join(random.choices(words, k=9)) + "\n" for _ in range(400))
    (folder / "text.txt").write_text("".join(lines), encoding="utf-8")


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    assert {language for language, _ in BLOCKS} == {"sh", "python"}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), {})
            continue
        for line in block.splitlines():
            program, *argv = shlex.split(line, comments=True)
            assert program == "qkv"
            small = SMALL if argv[0] == "train" else []
            assert main([*argv[:2], *small, *argv[2:]]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert "10 of the tokenizer's 10 words have a vector (100.0%)" in said
    assert (tmp_path / "runs" / "contextual" / "senses.json").is_file()
