"""Cost of a whole training: total FLOPs as papers count them, time, energy and price."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .accelerators import Accelerator

SECONDS_OF_A_DAY = 86_400


@dataclass(frozen=True)
class TrainingRun:
    """A training on `devices` of one kind.

    flops: model FLOPs, forward and backward. hardware_flops: device hours × the device's peak, the other way that papers
    count. kwh and price are None if the device's power or price is unknown.
    """

    tokens: float
    flops: float
    seconds: float
    hardware_flops: float
    devices: int
    kwh: float | None
    price: float | None

    @property
    def days(self) -> float:
        return self.seconds / SECONDS_OF_A_DAY


def whole_run(
    flops_per_token: float,
    tokens: float,
    hardware: Accelerator,
    precision: str = "bf16",
    utilization: float = 0.4,
    devices: int = 1,
) -> TrainingRun:
    """Return the cost of training on `tokens` tokens; `utilization` is the share of peak speed that is reached (MFU).

    Raises ValueError for a utilization outside (0, 1] and for less than one device or token.
    """
    if not 0 < utilization <= 1:
        raise ValueError(f"utilization is a share of the peak above 0, at most 1, not {utilization}")
    if devices < 1:
        raise ValueError(f"a training has at least 1 device, not {devices}")
    if not 1 <= tokens < math.inf:
        raise ValueError(f"a training has a finite number of tokens, at least 1, not {tokens:g}")
    flops, peak = flops_per_token * tokens, hardware.peak(precision)
    seconds = flops / (peak * utilization * devices)
    hours = seconds / 3600 * devices
    return TrainingRun(
        tokens,
        flops,
        seconds,
        hours * 3600 * peak,
        devices,
        None if hardware.watts is None else hours * hardware.watts / 1000,
        None if hardware.price is None else hours * hardware.price,
    )


def tokens_within(
    seconds: float,
    flops_per_token: float,
    hardware: Accelerator,
    precision: str = "bf16",
    utilization: float = 0.4,
    devices: int = 1,
) -> float:
    """Return the tokens that a training reads in a time; arguments as for `whole_run`. Raises ValueError for a time that
    isn't positive."""
    if not 0 < seconds < math.inf:
        raise ValueError(f"a training takes a time above 0, not {seconds:g} seconds")
    return seconds * hardware.peak(precision) * utilization * devices / flops_per_token


def hardware_flops(hours: float, devices: int, hardware: Accelerator, precision: str = "fp32") -> float:
    """Return device hours × peak, as Vaswani et al. (2017, table 2) estimate the FLOPs of a training."""
    return hours * 3600 * devices * hardware.peak(precision)
