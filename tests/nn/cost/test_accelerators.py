"""Accelerators by name, by description and measured; descriptions that say too little."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.cost.accelerators import KNOWN, accelerator, measured


def test_known_devices_have_plausible_figures():
    for device in KNOWN.values():
        assert 1e11 < device.bandwidth < 1e13 and 1e10 < device.memory < 1e12
        assert device.peak("bf16") >= device.peak("fp32")
    assert KNOWN["h100"].ridge("bf16") == pytest.approx(295, abs=1)


def test_a_precision_without_units_takes_the_next_wider_one():
    assert KNOWN["a100"].peak("fp8") == 312e12
    assert KNOWN["m4"].peak("bf16") == KNOWN["m4"].peak("fp32")


def test_a_description():
    device = accelerator({"bf16": 1e15, "bandwidth": 3e12, "memory": 8e10, "watts": 500})
    assert device.peak("bf16") == 1e15 and device.watts == 500 and device.price is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("h10", "there is no hardware 'h10'; did you mean 'h100'"),
        ("tpu", "or describe it: --hardware"),
        ({"bf16": 1e15, "memory": 8e10}, "hardware needs bandwidth"),
        ({"bandwidth": 1e12, "memory": 8e10}, "hardware needs a speed such as bf16"),
        ({"bf16": -1, "bandwidth": 1, "memory": 1}, "bf16 of the hardware is a positive number, not -1"),
        ({"bf17": 1, "bandwidth": 1, "memory": 1}, "hardware has no 'bf17'; did you mean 'bf16'"),
    ],
)
def test_hardware_that_is_not_known(given: object, message: str):
    with pytest.raises(ValueError, match=message):
        accelerator(given)  # type: ignore[arg-type]


def test_this_machine():
    device = measured(torch.device("cpu"))
    assert device.flops["fp32"] > 1e8 and device.bandwidth > 1e8
    assert accelerator("this") is device
