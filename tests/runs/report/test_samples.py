"""Samples, conversations, and the best and the worst examples on the page of a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qkv.runs.report.samples import best_and_worst, samples
from qkv.runs.report.story import Story

RUN = Path("run")
EVALUATION = {"split": "test", "examples": 40}


def example(source: str, output: str, score: float, **more: Any) -> dict[str, Any]:
    return {"source": source, "target": "yes", "output": output, "score": score, **more}


def test_the_best_and_the_worst_are_shown_with_their_score() -> None:
    best = [example("sure", "yes", 0.987)]
    worst = [example("<b>", "no", 0.004), example("unsure", "no", 0.4)]
    extremes = {"by": "true_class_probability", "best": best, "worst": worst}
    section = best_and_worst(Story(RUN, extremes=extremes, evaluation=EVALUATION))
    assert section is not None
    assert section.note == "Score: Probability of the true class; test split, 40 examples."
    texts = re.findall(r">([^<>\n]+)<", section.body)
    assert [texts.index(word) for word in ("Best", "sure", "Worst", "&lt;b&gt;", "unsure")] == sorted(
        texts.index(word) for word in ("Best", "sure", "Worst", "&lt;b&gt;", "unsure")
    )
    assert {"98.70 %", "0.40 %", "40.00 %"} <= set(texts)


def test_without_scores_there_is_no_section() -> None:
    assert best_and_worst(Story(RUN)) is None
    assert best_and_worst(Story(RUN, extremes={"by": "chrf", "best": [], "worst": []})) is None


def test_equal_scores_need_no_examples() -> None:
    best, worst = [example("a", "no", 0.0)], [example("b", "no", 0.0)]
    section = best_and_worst(Story(RUN, extremes={"by": "chrf", "best": best, "worst": worst}, evaluation=EVALUATION))
    assert section is not None and not section.body
    assert section.note == "Score: chrF; test split, 40 examples. All examples have the same score, 0.00."


def test_a_score_that_stands_for_the_output_is_shown_alone() -> None:
    one = {"source": "window", "output": "", "score": 0.25}
    section = best_and_worst(Story(RUN, extremes={"by": "mse", "best": [one], "worst": []}))
    assert section is not None and "<dt>model</dt>" not in section.body and ">0.25<" in section.body
    assert "Worst" not in section.body


def test_conversations_are_shown_turn_by_turn() -> None:
    messages = [{"role": "user", "content": "What is <i>?"}, {"role": "assistant", "content": "A tag."}]
    one = {"source": "…", "messages": messages, "output": "Yes.", "target": "No.", "graded": True}
    section = samples(Story(RUN, samples=[one], evaluation=EVALUATION))
    assert section is not None and section.title == "Conversations" and section.note.startswith("The test split:")
    turns = re.findall(r'class="turn ?(\w*)"><div class="role">(\w+)</div><div class="said[^>]*>([^<]*)<', section.body)
    assert turns == [
        ("user", "user", "What is &lt;i&gt;?"),
        ("assistant", "assistant", "A tag."),
        ("assistant", "model", "Yes."),
        ("assistant", "reference", "No."),
    ]
    assert "✗" not in section.body and "<mark>" not in section.body


def test_long_texts_are_folded_and_very_long_ones_cut() -> None:
    text = "word " * 3000
    section = samples(Story(RUN, samples=[{"source": text, "output": "short"}]))
    assert section is not None
    assert "<summary>Show the first 10,000 of 15,000 characters</summary>" in section.body
    beginning = section.body.split("<details")[0].rsplit(">", 1)[1]
    assert beginning.endswith("word …") and len(beginning) <= 402
    assert len(section.body) < 12_000 and section.body.count("<details") == 1


def test_an_output_that_begins_with_many_spaces_is_folded_too() -> None:
    section = samples(Story(RUN, samples=[{"source": "a", "output": "\n" * 1000 + "end"}]))
    assert section is not None and "<summary>Show all 1,003 characters</summary>" in section.body


def test_a_wrong_class_is_marked_as_a_whole() -> None:
    one = {"source": "a", "output": "negative", "target": "positive"}
    evaluation = {**EVALUATION, "confusions": [["positive", "negative", 3]]}
    of_classes, of_texts = (samples(Story(RUN, samples=[one], evaluation=e)) for e in (evaluation, EVALUATION))
    assert of_classes is not None and "<mark>negative</mark>" in of_classes.body
    assert of_texts is not None and "<mark>negative</mark>" not in of_texts.body
