"""Beams and language models for one evaluation of a task's run."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_recipes import prepared

from qkv.runs.evaluate.decoding import changed_decoding
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import Run

ARPA = "\\data\\\nngram 1=3\n\n\\1-grams:\n-99 <s>\n-0.7 </s>\n-3 <unk>\n\n\\end\\\n"


def test_settings_of_the_decoding_change_the_recipe() -> None:
    task = prepared("recognize-ctc").recipe.task
    assert changed_decoding(task, ["lm=a.arpa", "task.lm_weight=2"], 8) == (
        ["task.lm=a.arpa", "task.lm_weight=2", "task.beams=8"],
        None,
    )
    assert changed_decoding(None, [], 4) == ([], 4)
    assert changed_decoding(prepared("caption").recipe.task, [], 4) == ([], 4)
    with pytest.raises(ValueError, match="has no setting 'mean' that an evaluation may change; there is: beams"):
        changed_decoding(task, ["mean=3"], None)
    with pytest.raises(ValueError, match="this run has no task"):
        changed_decoding(None, ["beams=3"], None)


def test_an_evaluation_with_beams_and_a_language_model(tmp_path: Path) -> None:
    (tmp_path / "words.arpa").write_text(ARPA)
    small = prepared("recognize-ctc")
    run = Run(small.model, small.tokenizer, recipe=small.recipe)
    short = [f"lm={tmp_path / 'words.arpa'}", "lm_weight=0", "word_bonus=50"]  # the more words, the better
    plain, helped = (evaluate_run(run, task=task, num_beams=3, max_examples=2) for task in ((), short))
    words = [[len(one["output"].split()) for one in result.samples] for result in (plain, helped)]
    assert len(words[0]) == 2 and all(few + 2 < many for few, many in zip(*words, strict=True))
