"""Recorded searches: beams and distributions are the search's, which they don't change."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from qkv.generation import generate, trace
from qkv.generation.logits_processors import NoRepeatNGram
from qkv.generation.sampling import MinP, TopK
from qkv.io.families import preset
from qkv.nn.models.build import build


@pytest.fixture(scope="module")
def model() -> Any:
    made = build(preset("gpt2", vocab_size=12, d_model=16, n_layers=1, n_heads=2, d_ff=16), seed=0).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(6)
    return made


def test_beams_lead_to_the_result_with_its_score(model: Any) -> None:
    options: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 6, "eos_id": 5, "length_penalty": 0.7}
    plain = generate(model, [[1, 2]], **options)
    with trace.record() as search:
        traced = generate(model, [[1, 2]], **options)
    assert traced == plain and not search.choices and not trace.recording()
    paths: list[tuple[int, ...]] = [()]
    finished: dict[tuple[int, ...], float] = {}
    for step in search.beams:
        for beam in step.finished:
            finished[(*paths[beam.parent], beam.token)] = beam.score
        assert [beam.score for beam in step.running] == sorted((b.score for b in step.running), reverse=True)
        paths = [(*paths[beam.parent], beam.token) for beam in step.running]
    best = tuple(plain.sequences[0][0])
    assert plain.scores is not None and finished[best] == pytest.approx(plain.scores[0][0])
    assert max(finished.values()) == finished[best]


def test_choices_show_the_distribution_after_each_processor(model: Any) -> None:
    options: dict[str, Any] = {"temperature": 0.7, "top_k": 3, "no_repeat_ngram_size": 2, "seed": 1}
    plain = generate(model, [[1, 2], [3]], max_new_tokens=5, **options)
    with trace.record() as search:
        assert generate(model, [[1, 2], [3]], max_new_tokens=5, **options) == plain
    assert [choice.token for choice in search.choices] == plain.sequences[0][0] and not search.beams
    for i, choice in enumerate(search.choices):
        assert [stage.name for stage in choice.stages] == ["model", "no repeat ngram 2", "temperature 0.7", "top k 3"]
        assert choice.stages[0].possible == 12 and choice.stages[-1].possible == 3
        assert math.fsum(choice.stages[-1].probabilities) == pytest.approx(1)
        assert choice.token in choice.stages[-1].tokens
        with torch.no_grad():
            logits = model(torch.tensor([[1, 2, *plain.sequences[0][0][:i]]]))[0, -1]
        assert choice.stages[0].probabilities[0] == pytest.approx(float(logits.softmax(-1).max()), rel=1e-4)


def test_stages_are_named_by_processor_and_value() -> None:
    names = [trace.stage_name(one) for one in (TopK(50), MinP(0.05), NoRepeatNGram(3))]
    assert names == ["top k 50", "min p 0.05", "no repeat ngram 3"]


def test_nothing_is_recorded_outside_the_block(model: Any) -> None:
    with trace.record() as search:
        pass
    generate(model, [[1]], max_new_tokens=2)
    assert search == trace.Trace()
