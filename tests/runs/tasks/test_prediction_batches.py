"""Lines and files of new inputs; batches for prediction are tested for every task in test_every_task.py."""

from __future__ import annotations

import pytest

from qkv.runs.tasks.prediction_batches import in_parts, split_tabs


def test_a_line_has_a_text_for_each_name() -> None:
    assert split_tabs("a\tb\tc", ("QUESTION", "CONTEXT"), "text 1") == ["a", "b\tc"]
    for line in ("a", "a\t ", "\tb"):
        with pytest.raises(ValueError, match=r"text 1 is .* and this run reads QUESTION<tab>CONTEXT"):
            split_tabs(line, ("QUESTION", "CONTEXT"), "text 1")


def test_parts_hold_all_files_in_order() -> None:
    paths = [str(i) for i in range(40)]
    parts = list(in_parts(paths))
    assert [path for part in parts for path in part] == paths and max(map(len, parts)) < 40
