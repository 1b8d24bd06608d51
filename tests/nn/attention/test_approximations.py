"""The errors that docs/attention.md states: measured again, and falling as theory says."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from qkv.nn.attention.feature_maps import Elu1, Favor

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def page() -> str:
    return (DOCS / "attention.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("approximations", DOCS / "approximations.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_performers_error_falls_as_the_root_of_its_features(script: ModuleType, page: str) -> None:
    found = script.performers()
    small, middle, large = found.values()
    assert script.slope(small) == pytest.approx(-0.5, abs=0.1)
    assert script.slope(small) < script.slope(middle) < script.slope(large), "large scores need more features first"
    assert script.table("features m", found) in page
    assert ", ".join(f"{script.slope(points):.2f}" for points in found.values()) in page
    assert script.linear() in page
    assert script.by_features(0.1, Elu1()) > 4 * small[1024]


def test_four_times_as_many_features_of_performer_halve_its_error(script: ModuleType) -> None:
    features = [Favor(n_features=m) for m in (16, 64, 256)]
    errors = [sum(script.by_features(0.1, one, str(i)) for i in range(8)) for one in features]
    assert all(0.4 < more / fewer < 0.6 for fewer, more in pairwise(errors)), errors


def test_linformers_error_falls_above_the_rank_of_its_inputs(script: ModuleType, page: str) -> None:
    found = script.linformers()
    for band, points in zip(script.BANDS, found.values(), strict=True):
        above = {rank: error for rank, error in points.items() if rank >= 2 * band}
        assert len(above) < 2 or script.slope(above) == pytest.approx(-2, abs=0.4)
        assert all(error > 0.4 for rank, error in points.items() if rank < band)
    assert script.table("rank", found) in page


@pytest.mark.slow
def test_reformers_error_falls_with_its_rounds(script: ModuleType, page: str) -> None:
    found = script.reformers()
    assert all(list(points.values()) == sorted(points.values(), reverse=True) for points in found.values())
    assert script.table("rounds", found) in page


def test_more_rounds_err_less(script: ModuleType) -> None:
    errors = list(script.by_rounds([1, 2, 4, 8], sharpness=10, length=512, buckets=16).values())
    assert errors == sorted(errors, reverse=True) and errors[-1] < 0.5 * errors[0]
