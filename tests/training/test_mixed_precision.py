import pytest
import torch
from torch import nn
from train_stand_in import Tiny, train

from qkv.training import mixed_precision as module
from qkv.training.logging.metrics_file import read_metrics
from qkv.training.mixed_precision import LEAST_WIDTH, LEAST_WIDTHS, MixedPrecision, check_device, choose, slow

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.half)]
)
def test_computes_in_its_precision_over_fp32_weights(precision, dtype):
    layer = nn.Linear(4, 4)
    mixed = MixedPrecision(precision, layer, CPU)
    with mixed.autocast():
        out = layer(torch.ones(1, 4))
    assert out.dtype == dtype
    mixed.backward(out.float().sum() / 4)
    assert layer.weight.grad.dtype == torch.float32
    assert layer.weight.grad[0, 0] == (65536.0 / 4 if precision == "fp16" else 0.25)


@pytest.fixture
def native(monkeypatch):
    """Says what the device has: `native("amx_bf16")`, `native(None)`."""
    return lambda found: monkeypatch.setattr(module, "bf16_instructions", lambda device: found)


@pytest.mark.parametrize(
    ("has", "width", "taken", "said"),
    [
        ("amx_bf16", 128, "bf16", "natively (amx_bf16)"),
        ("avx512_bf16", 128, "bf16", "natively (avx512_bf16)"),
        ("amx_bf16", LEAST_WIDTHS["amx_bf16"] - 1, "fp32", "of width 127, below 128"),
        ("avx512_bf16", LEAST_WIDTHS["avx512_bf16"] - 1, "fp32", "of width 127, below 128"),
        ("bf16", LEAST_WIDTH - 1, "fp32", "of width 255, below 256"),
        ("amx_bf16", None, "fp32", "of unknown width"),
        (None, 1024, "fp32", "this CPU has no native bf16"),
    ],
)
def test_auto_is_bf16_where_it_is_native_and_gains(native, has, width, taken, said):
    native(has)
    chosen = choose("auto", CPU, width)
    assert chosen.precision == taken and said in chosen.why


def test_auto_on_a_gpu_asks_for_no_width(native):
    native("compute capability 9.0")
    assert choose("auto", torch.device("cuda"), 16) == ("bf16", "this GPU has it natively (compute capability 9.0)")
    native(None)
    assert choose("auto", torch.device("cuda"), 4096).precision == "fp32"


@pytest.mark.parametrize("wanted", ["fp32", "bf16", "fp16"])
def test_what_is_asked_for_is_taken(native, wanted):
    native(None)
    assert choose(wanted, CPU, 16) == (wanted, "")


def test_what_a_device_emulates_is_said_to_be_slow(native):
    native(None)
    assert "emulates it, slower than fp32" in slow("bf16", CPU)
    assert "this GPU" in slow("bf16", torch.device("cuda"))
    assert "slower than fp32 on a CPU" in slow("fp16", CPU)
    assert slow("fp32", CPU) is None and slow("fp16", torch.device("cuda")) is None
    native("amx_bf16")
    assert slow("bf16", CPU) is None and "fp16" in slow("fp16", CPU)


def test_a_model_without_a_width_stays_in_fp32(native):
    native("amx_bf16")
    assert MixedPrecision("auto", nn.Linear(2, 2), CPU).precision == "fp32"


def test_a_gpu_that_emulates_is_slow_but_allowed(monkeypatch):
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    check_device("bf16", torch.device("cuda"))


def test_weights_that_are_no_masters_are_refused():
    with pytest.raises(ValueError, match=r"weight is bfloat16"):
        MixedPrecision("bf16", nn.Linear(2, 2).bfloat16(), CPU)
    MixedPrecision("fp32", nn.Linear(2, 2).double(), CPU)


def test_a_device_without_the_precision_is_refused(monkeypatch):
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: False)
    with pytest.raises(ValueError, match="has no bf16"):
        MixedPrecision("bf16", nn.Linear(2, 2), CPU)


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
