import math
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from qkv.training.optimizers.schedules import (
    WSD,
    Constant,
    CosineDecay,
    InverseSquareRoot,
    LinearDecay,
    Polynomial,
    Schedule,
)
from qkv.training.settings import Training

FALLS = [
    *({"kind": "cosine"}, {"kind": "linear"}, {"kind": "polynomial"}, {"kind": "polynomial", "power": 0.5}),
    *(
        {"kind": "wsd", "shape": shape, "decay": decay}
        for shape in ("1-sqrt", "linear", "cosine")
        for decay in (0.1, 1.0)
    ),
]
each_fall = pytest.mark.parametrize("fields", FALLS, ids=lambda fields: "-".join(map(str, fields.values())))


@pytest.mark.parametrize("step", [1, 10, 3999, 4000, 4001, 100_000])
def test_noam_is_the_papers_equation_and_its_peak_form(step):
    paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert InverseSquareRoot(warmup=4000, d_model=512).factor(step) == paper
    assert InverseSquareRoot(warmup=4000).factor(step) * (512 * 4000) ** -0.5 == pytest.approx(paper)


def test_known_points():
    cosine, linear = CosineDecay(warmup=10, final_ratio=0.1), LinearDecay(warmup=10)
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


@each_fall
@settings(max_examples=40)
@given(
    warmup=st.integers(0, 50),
    total=st.integers(1, 500),
    ratio=st.floats(0, 1),
    unit=st.sampled_from(["steps", "time"]),
)
def test_a_fall_never_rises_again_and_ends_exactly_at_its_final_ratio(fields, warmup, total, ratio, unit):
    assume(warmup < total)
    schedule = Schedule.from_dict({**fields, "warmup": warmup, "final_ratio": ratio, "unit": unit})
    steps = range(max(warmup, 1), total + 1)
    got = [schedule.factor(step, total, (step - warmup) / (total - warmup)) for step in steps]
    assert all(ratio <= after <= before <= 1.0 for before, after in pairwise(got))
    assert got[-1] == ratio or (total == steps[0] and warmup)
    assert schedule.factor(total + 50, total, 1.0) == ratio


@each_fall
@settings(max_examples=20)
@given(total=st.integers(500, 1000), share=st.floats(0.0, 0.5))
def test_no_jump_anywhere(fields, total, share):
    warmup = int(share * total)
    schedule = Schedule.from_dict({**fields, "warmup": warmup})
    got = [schedule.factor(step, total) for step in range(1, total + 1)]
    steepest = max((abs(b - a) for a, b in pairwise(got)), default=0.0)
    # the steepest of them, 1 − √p at p = 0 and √(1 − p) at p = 1, fall by √(1/n) in one of n steps
    assert steepest <= 1e-12 + max(
        1.0 / max(warmup, 1), 1.2 * (1.0 / (0.1 * total)) ** 0.5 if warmup < 0.9 * total else 1.0
    )


def test_warm_up_stable_decay_at_known_points():
    wsd = WSD(warmup=10, decay=0.2, final_ratio=0.1)
    assert [wsd.factor(step, 100) for step in (5, 10, 50, 80)] == [0.5, 1.0, 1.0, 1.0]
    assert wsd.factor(85, 100) == pytest.approx(0.1 + 0.9 * (1 - 0.25**0.5)) and wsd.factor(100, 100) == 0.1
    linear, cosine = WSD(decay=0.5, shape="linear"), WSD(decay=0.5, shape="cosine")
    assert linear.factor(75, 100) == pytest.approx(0.5) and cosine.factor(75, 100) == pytest.approx(0.5)
    assert linear.factor(1, spent=0.5, total=100) == 1.0
    assert WSD(unit="time", shape="linear").factor(1, spent=0.9) == pytest.approx(0.5)


@given(step=st.integers(1, 800), longer=st.integers(1000, 9000))
def test_the_stable_part_is_the_same_in_runs_of_every_length(step, longer):
    wsd = WSD(warmup=100, decay=0.2)
    assert wsd.factor(step, 1000) == wsd.factor(step, longer)


def test_polynomials():
    square = Polynomial(power=2.0, final_ratio=0.2)
    assert [square.factor(step, 100) for step in (50, 100)] == [pytest.approx(0.2 + 0.8 * 0.25), 0.2]
    assert Polynomial(power=1.0, warmup=7).factor(40, 100) == LinearDecay(warmup=7).factor(40, 100)


def test_cosine_restarts():
    cosine = CosineDecay(warmup=10, cycles=3, final_ratio=0.0)
    assert [cosine.factor(step, 310) for step in (10, 110, 210, 310)] == pytest.approx([1.0, 1.0, 1.0, 0.0])
    assert [cosine.factor(step, 310) for step in (60, 160, 260)] == pytest.approx([0.5] * 3)
    assert cosine.factor(109, 310) < 0.001


def test_a_fall_may_be_complete_before_the_run():
    linear = LinearDecay(steps=50, final_ratio=0.1)
    assert [linear.factor(step, 100) for step in (25, 50, 80)] == pytest.approx([0.55, 0.1, 0.1])
    assert linear.factor(25) == linear.factor(25, 100)
    linear.check(100, None)
    linear.check(None, None)
    for schedule in (linear.replace(final_ratio=0.0), WSD(steps=50)):
        with pytest.raises(
            ValueError, match="reaches 0 at step 50, but the run continues to step 100 and would learn nothing"
        ):
            schedule.check(100, None)
        with pytest.raises(ValueError, match="continues without a set end"):
            schedule.check(None, None)
        schedule.check(50, None)
    with pytest.raises(ValueError, match="ends at step 50, before the 50 steps of warm-up do"):
        LinearDecay(steps=50, warmup=50)
    with pytest.raises(ValueError, match="falls by time, so its steps=50 say nothing"):
        LinearDecay(steps=50, unit="time").check(None, 60.0)


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear", "inverse-square-root", "polynomial", "wsd"])
def test_a_warm_up_that_outlasts_the_run_is_remarked(kind):
    schedule = Schedule.from_dict({"kind": kind, "warmup": 4000})
    assert "rises for 4,000 steps and the run ends after 4,000" in (schedule.remark(4000) or "")
    assert schedule.remark(50_000) is None and schedule.remark(None) is None


def test_a_decay_that_begins_in_the_warm_up_is_remarked():
    assert WSD(warmup=90, decay=0.2).remark(100) == (
        "the learning rate begins to fall at step 80, while it still rises until step 90"
    )
    assert WSD(warmup=80, decay=0.2).remark(100) is None


def test_by_time_it_falls_with_the_time_used():
    linear = LinearDecay(unit="time")
    assert [linear.factor(1, spent=spent) for spent in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]
    assert (
        CosineDecay(unit="time", warmup=10).factor(10, spent=0.1) == 1.0
    )  # the peak, and not what the fall leaves of it


@each_fall
@pytest.mark.parametrize("unit", ["steps", "time"])
@pytest.mark.parametrize("warmup", [0, 30, 100, 5000])
def test_by_the_pace_it_is_as_if_the_steps_had_been_known(fields, unit, warmup):
    """At an even pace: a run of 1,000 steps, each of which takes a thousandth of the time or of the epochs."""
    paced = Schedule.from_dict({**fields, "warmup": warmup, "final_ratio": 0.1, "unit": unit})
    known = Schedule.from_dict({**fields, "warmup": min(warmup, 200), "final_ratio": 0.1})
    steps = range(1, 1001)
    got = [paced.factor(step, None, step / 1000) for step in steps]
    assert got == pytest.approx([known.factor(step, 1000) for step in steps])
    assert got[-1] == pytest.approx(0.1)
    if fields.get("decay") != 1.0:  # which falls from the first step on
        assert max(got) == pytest.approx(1.0, abs=0.002)


@given(pace=st.lists(st.floats(0.1, 10.0), min_size=2, max_size=60), warmup=st.integers(1, 100))
def test_at_any_pace_it_rises_falls_and_ends_with_the_run(pace, warmup):
    spent = [sum(pace[: i + 1]) / sum(pace) for i in range(len(pace))]
    got = [
        LinearDecay(unit="time", warmup=warmup).factor(step, spent=min(part, 1.0))
        for step, part in enumerate(spent, start=1)
    ]
    assert all(0.0 <= factor <= 1.0 for factor in got) and got[-1] == pytest.approx(0.0, abs=1e-9)
    fallen = [i for i, factor in enumerate(got) if factor < 1.0 and (i + 1 >= warmup or spent[i] >= 0.2)]
    assert all(got[b] <= got[a] + 1e-9 for a, b in pairwise(fallen))


def test_what_a_warm_up_came_to_is_known_afterwards():
    assert "inside its warm-up of 4,000 steps" in (InverseSquareRoot(warmup=4000).hindsight(212) or "")
    assert InverseSquareRoot(warmup=4000).hindsight(4000) is None
    assert "rose in the first fifth of the run (about 20 steps)" in (
        CosineDecay(unit="time", warmup=50).hindsight(100) or ""
    )
    assert CosineDecay(unit="time", warmup=20).hindsight(100) is None


def test_what_is_said_of_a_warm_up_is_what_the_schedule_does() -> None:
    """By time and epochs the warm-up takes a fifth of the training at most; by steps alone it is as long as it is."""
    by_epochs = Training(schedule=CosineDecay(warmup=500), max_steps=400, max_epochs=2)
    assert by_epochs.lr(100, 0.0, 1.0) == pytest.approx(by_epochs.optimizer.lr, rel=0.4)  # long since risen
    assert by_epochs.paced and by_epochs.schedule.remark(400, by_epochs.paced) is None
    by_steps = Training(schedule=CosineDecay(warmup=500), max_steps=600, patience=1)
    assert by_steps.lr(100, 0.0, 1.0) == pytest.approx(by_steps.optimizer.lr / 5)
    assert "inside its warm-up of 500 steps" in by_steps.schedule.hindsight(100, by_steps.paced)


def test_a_missing_end_is_a_clear_error():
    with pytest.raises(ValueError, match=r"'cosine' falls until the last step.*set max_steps, max_epochs"):
        CosineDecay().check(None, 60.0)
    CosineDecay().check(None, None, 3)
    with pytest.raises(ValueError, match="set max_time"):
        LinearDecay(unit="time").check(100, None)
    with pytest.raises(ValueError, match="needs the number of steps"):
        CosineDecay().factor(1)
    InverseSquareRoot().check(None, None)


@pytest.mark.parametrize(
    "fields",
    [
        *(
            {"kind": "cosine", "final_ratio": 1.5},
            {"kind": "linear", "warmup": -1},
            {"kind": "polynomial", "power": 0.0},
        ),
        *({"kind": "wsd", "decay": 0.0}, {"kind": "wsd", "shape": "round"}, {"kind": "cosine", "cycles": 0}),
    ],
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValueError, match=next(k for k in fields if k != "kind")):
        Schedule.from_dict(fields)


def test_a_schedule_from_outside_the_package():
    class Halving(Schedule, kind="halving-test"):
        every: int = 10

        def factor(self, step: int, total: int | None = None, spent: float = 0.0) -> float:
            return self.rise(step) * math.pow(0.5, step // self.every)

    assert Schedule.from_dict({"kind": "halving-test"}).factor(25) == 0.25
