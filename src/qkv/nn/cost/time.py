"""Estimate the time of a training step from its FLOPs and the machine's peak speed."""

from __future__ import annotations

# Model FLOPs utilization of wide models, and the width at which half of it is reached: narrow models are bound by memory and
# Python. From steps measured with one thread (docs/machine.md); the values for GPUs are customary, not measured here.
_UTILIZATION = {("cpu", "fp32"): (0.7, 100.0), ("cpu", "bf16"): (0.3, 200.0), ("cuda", "bf16"): (0.5, 512.0)}
_OTHERWISE = (0.3, 256.0)


def utilization(device: str, precision: str, d_model: int) -> float:
    """Return the share of peak speed that training reaches: most · d / (d + half)."""
    most, half = _UTILIZATION.get((device, precision), _OTHERWISE)
    return most * d_model / (d_model + half)


def seconds(flops: float, peak: float, device: str, precision: str, d_model: int) -> float:
    """Estimate seconds within a factor of about two: FLOPs ÷ (peak FLOPs per second · utilization)."""
    return flops / (peak * utilization(device, precision, d_model))
