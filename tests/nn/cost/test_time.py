"""Estimates of time: FLOPs over speed, and wide models nearer the machine's best."""

from __future__ import annotations

import pytest

from qkv.nn.cost.time import seconds, utilization


def test_a_worked_example() -> None:
    """A width of 300 reaches 0.7 · 300 / 400 of the peak in fp32 on a CPU: 1e9 FLOPs at 1e9 a second take 1/0.525 s."""
    assert seconds(1e9, 1e9, "cpu", "fp32", 300) == pytest.approx(1 / 0.525)


@pytest.mark.parametrize(("device", "precision"), [("cpu", "fp32"), ("cpu", "bf16"), ("cuda", "bf16"), ("mps", "fp32")])
def test_wider_is_nearer_the_peak_and_never_above(device: str, precision: str) -> None:
    shares = [utilization(device, precision, width) for width in (16, 128, 1024, 1 << 20)]
    assert shares == sorted(shares) and shares[0] > 0 and shares[-1] < 1
