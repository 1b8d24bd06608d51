"""Compiling: when it pays, and a missing compiler is a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from qkv.nn.kernels.products import onednn
from qkv.training.compiling import GAIN, MARGIN, compiled, missing_compiler, payoff

CPU = torch.device("cpu")


def test_a_missing_compiler_is_a_sentence(monkeypatch):
    def missing():
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler.*install"):
        compiled(nn.Linear(2, 2), torch.device("cpu"))


def test_the_model_behind_it_is_the_model():
    model = nn.Linear(2, 2)
    wrapped = compiled(model, torch.device("meta"))
    assert dict(wrapped.named_parameters()).keys() == {f"_orig_mod.{name}" for name, _ in model.named_parameters()}


def test_a_missing_triton_is_a_sentence(monkeypatch):
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    assert missing_compiler(torch.device("cuda")) == "Triton, and it was not found; install triton"
    assert missing_compiler(torch.device("mps")) is None


def test_a_worked_example():
    """Four gated layers on a CPU: 20 + 4 · 8 s to compile; a gain of 1.15 saves 3/23 of the run."""
    found = payoff(2300.0, 4, CPU, one_shape=True, gated=True)
    assert found.cost == 52.0 and found.saved == pytest.approx(300.0) and found.pays
    assert str(found) == "about 52s now, saves about 5m00s of 38m20s"


def test_a_run_has_to_be_long_enough():
    cost = payoff(0.0, 4, CPU, one_shape=True).cost
    enough = MARGIN * cost / (1 - 1 / GAIN["cpu"][1])
    assert payoff(1.01 * enough, 4, CPU, one_shape=True, gated=True).pays
    assert not payoff(0.99 * enough, 4, CPU, one_shape=True, gated=True).pays
    assert not payoff(300.0, 2, CPU, one_shape=True, gated=True).pays


@pytest.mark.parametrize(("device", "one_shape"), [("cpu", False), ("cuda", False), ("mps", True)])
def test_where_nothing_is_known_to_be_gained_no_run_is_long_enough(device, one_shape):
    assert not payoff(1e9, 4, torch.device(device), one_shape, gated=True).pays


def test_layers_without_gates_gain_nothing_on_a_cpu() -> None:
    assert not payoff(1e9, 4, CPU, one_shape=True).pays
    assert payoff(1e9, 4, torch.device("cuda"), one_shape=True).pays


def test_fp32_gains_nothing_where_compiled_products_are_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    for faster in (True, False):
        monkeypatch.setattr(onednn, "is_faster", lambda faster=faster: faster)
        assert (payoff(1e6, 4, CPU, one_shape=True, gated=True, precision="fp32").saved == 0.0) == faster
        assert payoff(1e6, 4, CPU, one_shape=True, gated=True, precision="bf16").saved > 0.0
