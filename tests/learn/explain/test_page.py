"""The page escapes everything that is not ours."""

from __future__ import annotations

import torch

from qkv.learn.explain.explanation import Explanation
from qkv.learn.explain.steps import Step, matrix


def test_tokens_and_texts_are_escaped():
    bad = "<img src=x onerror=alert(1)>"
    step = Step(bad, bad, bad, (bad,), (matrix(torch.ones(1, 1), [bad], [bad], bad, True),))
    explanation = Explanation("attention", bad, bad, (step,))
    for html in (explanation.to_html(), explanation._repr_html_()):
        assert "<img" not in html and "&lt;img" in html


def test_weights_are_shaded_and_written():
    html = Explanation(
        "x", "x", "x", (Step("s", tables=(matrix(torch.tensor([[0.25]]), ["a"], shaded=True),)),)
    ).to_html()
    assert '<td class="weight" style="--share:25%">0.2500</td>' in html
