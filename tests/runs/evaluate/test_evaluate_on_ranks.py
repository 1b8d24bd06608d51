"""Evaluations that ranks divide: the same numbers, outputs and samples as of one process."""

import pytest
import small_recipes
from fast_subset import fast
from same_steps import evaluate_on

from qkv.core.ranks import ALONE

pytestmark = pytest.mark.xdist_group("ranks")


@pytest.mark.parametrize("settings", [(), ("generation.num_beams=3",), ("generation.temperature=1.0",)], ids=str)
def test_ranks_evaluate_pairs_as_one_process(two, trained, settings):
    wanted = evaluate_on(ALONE, str(trained), settings)
    assert len(wanted["outputs"]) == 11
    assert two.run(evaluate_on, str(trained), settings) == [wanted] * 2


def test_ranks_evaluate_running_text_as_one_process(two, trained_lm):
    wanted = evaluate_on(ALONE, str(trained_lm))
    assert two.run(evaluate_on, str(trained_lm)) == [wanted] * 2


@pytest.mark.parametrize("kind", fast(small_recipes.RECIPES, "classify", "image-classify", "masked-language-model"))
def test_ranks_evaluate_each_task_as_one_process(two, kind):
    wanted = evaluate_on(ALONE, "", (), kind)
    for found in two.run(evaluate_on, "", (), kind):
        assert found.pop("metrics") == pytest.approx(wanted["metrics"], rel=1e-12, nan_ok=True)
        assert {**found, "metrics": wanted["metrics"]} == wanted
