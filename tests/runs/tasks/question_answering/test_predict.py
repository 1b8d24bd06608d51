"""Answers to new questions are the answers of the evaluation."""

from __future__ import annotations

import pytest
from short_runs import Train, evaluated, examples


@pytest.mark.parametrize("margin", [0.0, -5.0, 1e3])
def test_answers_match_the_evaluation(short_run: Train, margin: float) -> None:
    run = short_run("answer", "data.train=300", "task.longest=40", "task.overlap=8", f"task.margin={margin}")
    told = evaluated(run)
    made = run.predict([f"{one['question']}\t{one['context']}" for one in examples(run)])
    assert {one.input.replace("\t", "\n"): one.text for one in made} == {k: one["output"] for k, one in told.items()}
    for one in made:
        found, context = one.value, one.input.split("\t")[1]
        assert found.answer is None or context[found.start :].startswith(found.answer)
        assert (found.answer is None) == (found.none - found.score > margin) == (one.text == "(no answer)")
