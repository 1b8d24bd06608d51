"""A prediction's output files, and a model without a tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.runs.tasks.prediction import Prediction


def test_files_are_named_after_the_input(tmp_path: Path) -> None:
    made = Prediction("a/b.png", 1, "1", {}, "b", lambda: {".txt": b"x", ".mask.png": b"y"})
    assert made.write(tmp_path / "new" / "out") == [tmp_path / "new/out/b.txt", tmp_path / "new/out/b.mask.png"]
    assert (tmp_path / "new/out/b.mask.png").read_bytes() == b"y"
    with pytest.raises(ValueError, match="these predictions have no files to write; give --out a table"):
        Prediction("a", 1, "1", {}).write(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_number_is_text_and_json() -> None:
    made = Prediction.of_number("a\tb", 0.123456)
    assert (made.input, made.value, made.text, made.fields) == ("a\tb", 0.123456, "0.1235", {"score": 0.123456})
