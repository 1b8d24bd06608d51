"""Sources of text files: one file per split, and the policy for lines that can't be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.data.readers.jsonl import JsonLines


def test_each_split_has_its_own_file(tmp_path: Path) -> None:
    source = JsonLines(path=str(tmp_path / "a.jsonl"), test_path="~/b.jsonl")
    assert source.paths("train") == (tmp_path / "a.jsonl",) and source.paths("validation") == ()
    assert source.paths("test") == (Path("~/b.jsonl").expanduser(),)
    with pytest.raises(ValueError, match=r"no training data: give data\.path, a JSONL or Parquet file"):
        JsonLines().paths("train")


def test_bad_lines_are_skipped_with_a_warning_for_the_first_few(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' + "{\n" * 5)
    table = JsonLines(path=str(tmp_path / "a.jsonl"), on_error="skip").readable("train")
    with pytest.warns(UserWarning, match="is not valid JSON") as caught:
        assert [table[i] for i in range(len(table))] == [{"text": "a"}, *["damaged"] * 5]
    assert len(caught) == 3 and str(caught[2].message).endswith("further ones are only counted")
    with pytest.raises(ValueError, match="line 2, is not valid JSON"):
        JsonLines(path=str(tmp_path / "a.jsonl")).readable("train")[1]
