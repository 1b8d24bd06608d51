"""What is on `auto` is chosen, told and kept."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.io.families import preset
from qkv.nn.cost.flops import BatchShape
from qkv.runs.train import auto_settings as choices
from qkv.runs.train.auto_settings import Chooser, adopt
from qkv.training import compiling
from qkv.training import mixed_precision as precision
from qkv.training.settings import Training

CPU = torch.device("cpu")
WIDE = preset("llama", d_model=256, n_layers=2, n_heads=4, d_ff=512, vocab_size=100, max_positions=64)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with AMX, a compiler, and a known speed."""
    monkeypatch.setattr(precision, "bf16_instructions", lambda device: "amx_bf16")
    monkeypatch.setattr(choices, "peak_flops", lambda device, dtype: 1e11)
    monkeypatch.setattr(compiling, "missing_compiler", lambda device: None)


def settle(training: Training, one_shape: bool = True) -> tuple[Training, list[str]]:
    said: list[str] = []
    return Chooser(WIDE, BatchShape(8, 64), CPU, one_shape, said.append).resolve(training), said


def test_a_choice_is_told_with_its_reason() -> None:
    training, said = settle(Training(max_steps=10))
    assert (training.precision, training.compile) == ("bf16", False)
    assert said == ["Computing in bf16: this CPU has it natively (amx_bf16)."]


def test_what_was_asked_for_stays_and_what_is_slow_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    training, said = settle(Training(precision="fp32", compile=True, max_steps=10))
    assert (training.precision, training.compile, said) == ("fp32", True, [])
    monkeypatch.setattr(precision, "bf16_instructions", lambda device: None)
    training, said = settle(Training(precision="bf16", max_steps=10))
    assert training.precision == "bf16"
    assert len(said) == 1 and said[0].startswith("Slow: this CPU has no native bf16 and emulates it")


def test_a_long_run_is_compiled_and_says_what_that_saves() -> None:
    long = Training(max_steps=1_000_000)
    training, said = settle(long)
    assert training.compile is True
    assert said[-1].startswith("compile: about 36s now, saves about ")
    assert settle(long, one_shape=False)[0].compile is False
    assert settle(long.replace(max_time=60.0))[0].compile is False
    assert settle(long.replace(compile=False))[0].compile is False
    assert settle(Training(max_steps=None, patience=3))[0].compile is False


def test_without_a_compiler_a_long_run_goes_uncompiled_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "missing_compiler", lambda device: "a C++ compiler, and none was found")
    training, said = settle(Training(max_steps=1_000_000))
    assert training.compile is False
    assert "but it needs a C++ compiler" in said[-1]


def test_a_run_that_continues_keeps_what_was_chosen() -> None:
    saved = Training(precision="bf16", compile=True)
    assert adopt(Training(), saved) == saved
    given = Training(precision="fp32", compile=False)
    assert adopt(given, saved) == given


class Unlike:
    """Two ranks, seen from the first; the other's machine gives other answers."""

    size, rank = 2, 0

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def gather(self, value: Any) -> list[Any]:
        return [value, self.answers.pop(0)]


def test_ranks_with_different_machines_take_the_precision_that_all_have() -> None:
    said: list[str] = []
    ranks: Any = Unlike(("fp32", "this CPU has no native bf16"), None)
    training = Chooser(WIDE, BatchShape(8, 64), CPU, True, said.append, ranks=ranks).resolve(Training(max_steps=10))
    assert training.precision == "fp32"
    assert said == ["Computing in fp32: the ranks have different machines, and on rank 1, this CPU has no native bf16."]
    ranks = Unlike(("fp32", None), None)
    asked = Training(precision="bf16", max_steps=10)  # by name it stays
    assert Chooser(WIDE, BatchShape(8, 64), CPU, True, said.append, ranks=ranks).resolve(asked).precision == "bf16"


def test_nothing_is_compiled_if_one_rank_lacks_a_compiler() -> None:
    said: list[str] = []
    ranks: Any = Unlike(("bf16", None), "a C++ compiler")
    training = Chooser(WIDE, BatchShape(8, 64), CPU, True, said.append, ranks=ranks).resolve(Training(max_steps=10**7))
    assert training.compile is False and said[-1].endswith("; but it needs a C++ compiler on rank 1.")
