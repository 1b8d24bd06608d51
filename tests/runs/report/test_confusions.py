"""The mistakes of a classifier on its page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qkv.runs.report.confusions import confusions
from qkv.runs.report.story import Story


def story(*pairs: object) -> Story:
    return Story(Path("run"), evaluation={"confusions": list(pairs)})


def test_the_matrix_and_the_most_frequent_confusions() -> None:
    section = confusions(story(["cat", "cat", 6], ["cat", "<dog>", 2], ["<dog>", "cat", 3], ["<dog>", "<dog>", 1]))
    assert section is not None and section.note == "5 of 12 predictions are wrong."
    rows = [re.findall(r">([^<>]+)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", section.body)]
    assert rows[:3] == [["&lt;dog&gt;", "cat"], ["&lt;dog&gt;", "1", "3"], ["cat", "2", "6"]]
    assert rows[3:] == [
        ["truth", "model", "times", "share"],
        ["&lt;dog&gt;", "cat", "3", "75% of &lt;dog&gt;"],
        ["cat", "&lt;dog&gt;", "2", "25% of cat"],
    ]
    assert 'aria-label="Confusion matrix"' in section.body


def test_many_classes_have_only_the_list() -> None:
    section = confusions(story(*([f"class {i}", f"class {(i + 1) % 30}", i + 1] for i in range(30))))
    assert section is not None and "Confusion matrix" not in section.body
    assert section.body.count('<tr><th scope="row"') == 10 and "class 29" in section.body


def test_a_run_without_classes_has_no_such_section() -> None:
    assert confusions(story()) is None and confusions(Story(Path("run"))) is None


def test_malformed_confusions_are_named() -> None:
    with pytest.raises(ValueError, match='"confusions" in the evaluation of run are not a list of true class'):
        confusions(story(["cat", "dog"]))
