import pytest
import torch
from torch import nn
from train_stand_in import Tiny, train

from qkv.train.metrics import read_metrics
from qkv.train.precision import Mixed

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.half)]
)
def test_computes_in_its_precision_over_fp32_weights(precision, dtype):
    layer = nn.Linear(4, 4)
    mixed = Mixed(precision, layer, CPU)
    with mixed.autocast():
        out = layer(torch.ones(1, 4))
    assert out.dtype == dtype
    mixed.backward(out.float().sum() / 4)
    assert layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad[0, 0] == (65536.0 / 4 if precision == "fp16" else 0.25)


def test_weights_that_are_no_masters_are_refused():
    with pytest.raises(ValueError, match=r"weight is bfloat16"):
        Mixed("bf16", nn.Linear(2, 2).bfloat16(), CPU)
    Mixed("fp32", nn.Linear(2, 2).double(), CPU)


def test_a_device_without_the_precision_is_refused(monkeypatch):
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: False)
    with pytest.raises(ValueError, match="has no bf16"):
        Mixed("bf16", nn.Linear(2, 2), CPU)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_training_learns_and_stays_close_to_fp32(tmp_path, precision):
    losses = {}
    for one in ("fp32", precision):
        optimizer = {"kind": "adamw", "lr": 0.02}
        outcome = train(tmp_path / one, Tiny(dropout=0.0), max_steps=40, precision=one, optimizer=optimizer)
        losses[one] = outcome.metrics["loss"]
    assert losses[precision] < 2.0
    assert losses[precision] == pytest.approx(losses["fp32"], abs=0.1)


class Overflows(Tiny):
    """Its gradients leave fp16's range until the loss scale has come down a few times."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        self.layer.weight.register_hook(lambda g: torch.where(g.abs() > 50.0, torch.inf, g))


def test_an_overflow_lowers_the_scale_and_is_no_bad_step(tmp_path):
    outcome = train(tmp_path, Overflows(), precision="fp16", max_bad_steps=2)
    guard = outcome.state.guard
    assert outcome.ending == "max_steps" and guard.overflows > 2 and guard.bad == 0
    events = [line for line in read_metrics(tmp_path / "metrics.jsonl") if line.get("event") == "overflow"]
    assert len(events) == guard.overflows
