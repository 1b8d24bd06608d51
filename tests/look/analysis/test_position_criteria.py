"""The four criteria of position schemes, against what their papers say, and where values rise."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import cast

import pytest
import torch

from qkv.look.analysis.position_criteria import NEAR, by_distance, described, position_criteria, rises
from qkv.nn.layers.patches import GridPosition
from qkv.nn.positions.absolute import Learned, NoPosition, Sinusoidal
from qkv.nn.positions.axes import AxialRotary, MultimodalRotary
from qkv.nn.positions.base import Position
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rope_scaling import YaRN
from qkv.nn.positions.rotary import Rotary
from qkv.nn.positions.tempered import TemperedRotary
from qkv.nn.positions.xpos import XPos

EXPECTED = {
    NoPosition(): "no yes yes yes",
    Sinusoidal(): "yes yes yes yes",
    Sinusoidal(base=1.0001): "yes yes yes yes",
    Learned(): "yes no yes no",
    Rotary(): "yes yes yes yes",
    Rotary(scaling=YaRN(factor=4.0, original_max_positions=16)): "yes yes yes yes",
    XPos(): "yes yes no yes",
    MultimodalRotary(): "yes yes yes yes",
    AxialRotary(): "yes yes yes yes",
    TemperedRotary(): "yes yes yes yes",
    TemperedRotary(length=4): "yes no yes yes",
    ALiBi(): "yes yes no yes",
    T5Buckets(): "no yes yes no",
    GridPosition(): "yes no yes no",
    GridPosition(table="sinusoidal"): "yes yes yes yes",
}


@pytest.mark.parametrize(("scheme", "expected"), EXPECTED.items(), ids=lambda value: str(value))
def test_which_criteria_hold(scheme: Position, expected: str):
    assert " ".join("yes" if holds else "no" for holds in position_criteria(scheme)) == expected


def test_every_scheme_of_the_package_is_checked():
    ours = {kind for kind, cls in Position.kinds.items() if cls.__module__.startswith("qkv.")}
    assert {scheme.kind for scheme in EXPECTED} == ours


def test_sinusoids_give_sums_of_cosines_that_do_not_only_fall():
    """Σ cos(k · rate), computed without tensors, rises at the same distances."""
    rates = [10000 ** (-2 * i / 64) for i in range(32)]
    sums = [sum(math.cos(k * rate) for rate in rates) for k in range(NEAR)]
    values = by_distance(Sinusoidal())
    assert values is not None and torch.allclose(values, torch.tensor(sums), atol=1e-4)
    assert rises(values) == rises(sums)
    assert rises(sums)[:3] == [(5, 6), (10, 12), (16, 18)]


def test_the_page_on_mechanisms_says_what_is_computed():
    page = (Path(__file__).parents[3] / "docs" / "mechanisms.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `([\w-]+)` \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \| (.*?) ?\|$", page, re.MULTILINE
    )
    assert {kind for kind, *_ in rows} == {spec.kind for spec in EXPECTED}
    for kind, *holds, where in rows:
        said = described(cast(Position, Position.kinds[kind]()))
        criteria, _, values = said.removesuffix(".").partition("; ")
        assert re.findall(r"yes|no", criteria) == holds
        assert (
            values.removeprefix("its dot product rises at distances ").replace(
                "its bias never rises with distance", "never"
            )
            == where
        )


def test_rises_are_the_ends_of_each_climb():
    assert rises([3, 1, 2, 4, 0, 1]) == [(1, 3), (4, 5)]
    assert rises([1, 2, 3]) == [(0, 2)]
    assert rises([3, 2, 2, 1]) == []


def test_criteria_are_told_in_a_sentence():
    assert described(NoPosition()) == "Unique: no, consistent: yes, bounded: yes, deterministic: yes."
    assert described(ALiBi()).endswith("; its bias never rises with distance.")
    assert "rises" not in described(Learned())
