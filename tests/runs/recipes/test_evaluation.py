"""How many examples are decoded after short trainings, and which settings are refused."""

from __future__ import annotations

import pytest

from qkv.runs.recipes.evaluation import Evaluation, decoded


@pytest.mark.parametrize(("steps", "examples"), [(None, None), (100, None), (5000, None), (99, 412), (1, 20), (0, 16)])
def test_a_short_training_decodes_few_examples(steps: int | None, examples: int | None) -> None:
    assert decoded(steps) == examples


def test_settings_out_of_range_are_refused() -> None:
    for wrong in ({"examples": 0}, {"samples": -1}, {"num_beams": 0}, {"metrics": ("blue",)}):
        with pytest.raises(ValueError):
            Evaluation(**wrong)
