"""The tables of calls in docs/architecture.md are what a training and a generation do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest
import torch

import qkv
from qkv.cli import main
from qkv.data.tokenizers.tokenizer import train

SOURCE = Path(qkv.__file__).parent
PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")


def table(title: str) -> list[tuple[str, str]]:
    """(file, qualified name) of each row below a title."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return [(file, call) for call, file in re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \|", section, re.MULTILINE)]


def entered(call: Callable[[], object]) -> list[tuple[str, str]]:
    """(file, qualified name) of all functions of qkv that a call enters, in the order of their first entries."""
    codes: dict[CodeType, None] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code not in codes:
            codes[frame.f_code] = None

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    ours = [code for code in codes if code.co_filename.startswith(str(SOURCE))]
    places = [(Path(code.co_filename).relative_to(SOURCE).as_posix(), code.co_qualname) for code in ours]
    return list(dict.fromkeys(places))


def check(title: str, call: Callable[[], object]) -> None:
    rows, order = table(title), entered(call)
    assert len(rows) > 10
    missing = [row for row in rows if row not in order]
    assert not missing, f"the call does not enter {missing}"
    assert sorted(rows, key=order.index) == rows, "the rows are not in the order of the calls"


def test_the_calls_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["data.train=200", "data.validation=20", "data.test=20", "data.languages=[de]", "tokenizer.vocab_size=300"]
    small += ["model.d_model=16", "model.n_heads=2", "training.max_steps=2", "evaluation.test_examples=8"]
    small += ["evaluation.examples=4", "generation.max_new_tokens=8"]
    check("What happens in `qkv train`", lambda: main(["train", "localise", "--out", "run", *small]))


def test_the_calls_of_a_generation() -> None:
    model = qkv.build(qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=2, vocab_size=64, max_positions=16), seed=0)
    run = qkv.Run(model, train("char", ["ab"]))
    with torch.no_grad():
        check("What happens in `run.generate`", lambda: run.generate("ab", max_new_tokens=3))
