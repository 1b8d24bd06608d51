"""Whole trainings: published totals recomputed, both ways of counting, energy and price."""

from __future__ import annotations

import pytest

from qkv.io.families import preset
from qkv.nn.cost.accelerators import KNOWN, Accelerator
from qkv.nn.cost.whole_run import hardware_flops, whole_run


def test_the_totals_of_the_transformer_paper():
    """Vaswani et al. (2017), table 2: 12 hours (base) and 3.5 days (big) on 8 P100s, at 9.5 TFLOP/s each."""
    assert hardware_flops(12, 8, KNOWN["p100"]) == pytest.approx(3.3e18, rel=0.01)
    assert hardware_flops(3.5 * 24, 8, KNOWN["p100"]) == pytest.approx(2.3e19, rel=0.01)


def test_gpt3_by_six_n_d():
    """Brown et al. (2020), table D.1: 3.14e23 FLOPs for 175 B parameters and 300 B tokens, by 6 N D."""
    run = whole_run(6 * 174.6e9, 300e9, KNOWN["a100"])
    assert run.flops == pytest.approx(3.14e23, rel=0.01)


def test_time_energy_and_price():
    device = Accelerator("d", {"bf16": 1e12}, 1e12, 1e9, watts=500, price=2.0)
    run = whole_run(1e9, 3.6e6, device, utilization=0.5, devices=2)
    assert run.seconds == 3600 and run.days == 1 / 24
    assert run.kwh == 1.0 and run.price == 4.0
    assert run.hardware_flops == pytest.approx(run.flops / 0.5)


def test_active_parameters_of_mixtral():
    spec = preset("mixtral-8x7b")
    assert spec.n_parameters / 1e9 == pytest.approx(46.7, abs=0.05)
    assert spec.cost().active / 1e9 == pytest.approx(12.9, abs=0.05)


@pytest.mark.parametrize(
    ("more", "message"), [({"utilization": 0}, "above 0, at most 1"), ({"devices": 0}, "at least 1")]
)
def test_impossible_trainings_are_refused(more: dict[str, float], message: str):
    with pytest.raises(ValueError, match=message):
        whole_run(1e9, 1e6, KNOWN["h100"], **more)  # type: ignore[arg-type]
