"""Every explanation has a worked example and a page; a model that lacks what is explained is told what it can show."""

from __future__ import annotations

import re

import pytest
from run_untrained import of, words

from qkv.learn.explain.of_run import subject
from qkv.learn.explain.registry import EXPLANATIONS, applicable, explain
from qkv.learn.explain.toy import language_model, translator


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_every_example_has_steps_and_a_page_without_requests(name: str):
    explanation = explain(name)
    assert explanation.name == name and len(explanation.steps) >= 3
    html = explanation.to_html()
    assert all(step.title for step in explanation.steps) and "nan" not in re.sub(r"<[^>]+>", "", html).lower()
    assert "://" not in html and "<script" not in html and "src=" not in html
    assert explanation.to_dict()["title"] == explanation.title


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="there is no explanation 'atention'; did you mean 'attention'"):
        explain("atention")


def test_a_model_says_what_it_can_show():
    run = of("transformer-base", words(), "translate")
    with pytest.raises(
        ValueError, match=r"does not have a mixture of experts, which moe explains; explain attention, .* with it"
    ):
        explain("moe", subject(run, "ab", "c"))


def test_a_choice_without_effect_is_refused():
    run = of("gpt2", words(), "continue")
    assert explain("attention", subject(run, "ab", layer=0, head=1, token=1))
    with pytest.raises(ValueError, match="position has no head to choose in this run; leave it out"):
        explain("position", subject(run, "ab", head=1))


def test_what_applies_to_the_examples():
    assert set(applicable(translator())) >= {"attention", "cross", "decoder-step", "beam", "kv-cache"}
    assert "cross" not in applicable(language_model()) and "mask" in applicable(language_model())
