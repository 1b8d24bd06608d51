import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.train.schedule import Constant, Cosine, InverseSquareRoot, Linear, Schedule


@pytest.mark.parametrize("step", [1, 10, 3999, 4000, 4001, 100_000])
def test_noam_is_the_papers_equation_and_its_peak_form(step):
    paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert InverseSquareRoot(warmup=4000, d_model=512).factor(step) == paper
    assert InverseSquareRoot(warmup=4000).factor(step) * (512 * 4000) ** -0.5 == pytest.approx(paper)


def test_known_points():
    cosine, linear = Cosine(warmup=10, final_ratio=0.1), Linear(warmup=10)
    assert [cosine.factor(s, 110) for s in (1, 5, 10)] == [0.1, 0.5, 1.0]
    assert cosine.factor(60, 110) == pytest.approx(0.55) and cosine.factor(110, 110) == pytest.approx(0.1)
    assert [linear.factor(s, 110) for s in (10, 60, 110, 500)] == [1.0, 0.5, 0.0, 0.0]
    assert [Constant(warmup=4).factor(s) for s in (1, 2, 4, 900)] == [0.25, 0.5, 1.0, 1.0]
    assert Constant().factor(1) == 1.0


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear", "inverse-square-root"])
@given(warmup=st.integers(1, 500), total=st.integers(1, 2000), step=st.integers(1, 2000))
def test_rises_to_its_peak_then_never_rises_again(kind, warmup, total, step):
    schedule = Schedule.from_dict({"kind": kind, "warmup": warmup})
    here, after = schedule.factor(step, total), schedule.factor(step + 1, total)
    assert 0.0 <= here <= 1.0
    assert after >= here if step < warmup else after <= here + 1e-12


def test_by_time_it_falls_with_the_time_used():
    linear = Linear(unit="time")
    assert [linear.factor(1, spent=spent) for spent in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert Cosine(unit="time", warmup=4).factor(1, spent=0.5) == pytest.approx(0.25 * (0.1 + 0.9 * 0.5))


def test_a_missing_end_is_a_clear_error():
    with pytest.raises(ValueError, match=r"'cosine' falls until the last step.*set max_steps"):
        Cosine().check(None, 60.0)
    with pytest.raises(ValueError, match="set max_time"):
        Linear(unit="time").check(100, None)
    with pytest.raises(ValueError, match="needs the number of steps"):
        Cosine().factor(1)
    InverseSquareRoot().check(None, None)


@pytest.mark.parametrize("fields", [{"kind": "cosine", "final_ratio": 1.5}, {"kind": "linear", "warmup": -1}])
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValueError, match=next(k for k in fields if k != "kind")):
        Schedule.from_dict(fields)


def test_a_schedule_from_outside_the_package():
    class Halving(Schedule, kind="halving-test"):
        every: int = 10

        def factor(self, step: int, total: int | None = None, spent: float = 0.0) -> float:
            return self.rise(step) * math.pow(0.5, step // self.every)

    assert Schedule.from_dict({"kind": "halving-test"}).factor(25) == 0.25
