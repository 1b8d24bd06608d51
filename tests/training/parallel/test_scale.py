"""The block `scale`: what it may hold, and the messages for what it may not."""

from __future__ import annotations

import re

import pytest

from qkv.core.spec import explain
from qkv.runs.recipes.recipe import Recipe
from qkv.training.parallel.scale import Scale


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["scale=automatic"], "scale: it is auto, or settings such as {shard: 2}, not 'automatic'"),
        (
            ["scale=auto", "scale.shard=2"],
            "scale: auto chooses shard too, and shard=2 is given; leave out one of the two",
        ),
        (["scale.zero=4"], "scale.zero: input should be 0, 1, 2 or 3, not 4"),
        (["scale.context=0"], "scale.context: input should be greater than or equal to 1, not 0"),
        (["scale.timeout=x"], "scale.timeout: 'x' is not a duration"),
        (["scale.tensr=2"], "there is no 'scale.tensr'; did you mean 'scale.tensor'"),
    ],
)
def test_wrong_settings_are_named_with_what_is_allowed(settings: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        try:
            Recipe.load("reverse", settings)
        except ValueError as error:
            raise ValueError(explain(error) if hasattr(error, "errors") else str(error)) from error
    assert "\n" not in str(raised.value)


def test_auto_goes_with_a_timeout() -> None:
    assert Recipe.load("reverse", ["scale=auto", "scale.timeout=5s"]).scale == Scale(auto=True, timeout=5.0)


@pytest.mark.parametrize("settings", [{}, {"shard": 2}, {"data": 2, "tensor": 3, "pipeline": 2}])
def test_the_least_number_of_ranks_fits(settings: dict[str, int]) -> None:
    scale = Scale.from_dict(settings)
    assert scale.sizes(scale.at_least).ranks == scale.at_least
    with pytest.raises(ValueError, match="does not fit"):
        Scale.from_dict({**settings, "data": 1}).sizes(scale.at_least + 1)
