"""About how long a training step takes, from its FLOPs and the machine's best speed."""

from __future__ import annotations

# Model FLOPs utilization of wide models, and the width at which half of it is reached: narrow ones wait for memory and for
# Python. From steps measured with one thread (docs/machine.md); for GPUs a customary share, not measured here.
_UTILIZATION = {("cpu", "fp32"): (0.7, 100.0), ("cpu", "bf16"): (0.3, 200.0), ("cuda", "bf16"): (0.5, 512.0)}
_OTHERWISE = (0.3, 256.0)


def utilization(device: str, precision: str, d_model: int) -> float:
    """The share of the best speed at which training computes: most · d / (d + half)."""
    most, half = _UTILIZATION.get((device, precision), _OTHERWISE)
    return most * d_model / (d_model + half)


def seconds(flops: float, peak: float, device: str, precision: str, d_model: int) -> float:
    """An estimate, good within a factor of two or so: FLOPs ÷ (peak FLOPs a second · utilization)."""
    return flops / (peak * utilization(device, precision, d_model))
