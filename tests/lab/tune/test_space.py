"""Spaces: ranges and choices are read, drawn within their bounds, and mistakes are one sentence."""

from __future__ import annotations

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.lab.tune.space import Dimension


def test_ranges_and_choices() -> None:
    lr = Dimension.parse("training.optimizer.lr=1e-4..1e-2,log")
    assert (lr.low, lr.high, lr.log, lr.whole) == (1e-4, 1e-2, True, False)
    layers = Dimension.parse("n_layers=2..6")
    assert (layers.low, layers.high, layers.whole, layers.log) == (2, 6, True, False)
    assert layers.ends() == ("n_layers=2", "n_layers=6")
    assert Dimension.parse("dropout=0.0..0.3").text(0.1234567) == "0.123457"
    choices = Dimension.parse("norm={kind: rms-norm, eps: 1e-5},layer-norm").choices
    assert choices == ("{kind: rms-norm, eps: 1e-5}", "layer-norm")
    assert Dimension.of("lr", "1e-4..1e-2, log") == Dimension.parse("lr=1e-4..1e-2,log")
    assert Dimension.of("n", [1, 2]).ends() == ("n=1", "n=2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "--space lr is not a space; write KEY=LOW..HIGH"),
        ("lr=", "is not a space"),
        ("lr=1..x", "a bound that is not a number"),
        ("lr=3..3", "the lower bound has to be less"),
        ("lr=0..1,log", "begins above 0"),
        ("lr=1..2,lin", "is not a range"),
        ("lr=1,1", "has a value twice"),
        ("lr=1", "has one value, so there is nothing to tune"),
        ("lr=1,,2", "has an empty value"),
    ],
)
def test_mistakes_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dimension.parse(text)


@given(
    low=st.integers(1, 50), width=st.integers(1, 50), log=st.booleans(), whole=st.booleans(), seed=st.integers(0, 99)
)
def test_values_are_within_their_bounds(low: int, width: int, log: bool, whole: bool, seed: int) -> None:
    bounds = (str(low), str(low + width)) if whole else (f"{low / 7:.6g}", f"{(low + width) / 7:.6g}")
    one = Dimension.parse(f"x={'..'.join(bounds)}{',log' if log else ''}")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    value = one.suggest(study.ask()).removeprefix("x=")
    assert one.low * (1 - 1e-5) <= float(value) <= one.high * (1 + 1e-5)
    assert not whole or value.isdigit()
