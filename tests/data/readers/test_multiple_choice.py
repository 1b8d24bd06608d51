"""Multiple-choice questions: candidates and the numbers of the right ones."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from qkv.data.readers.multiple_choice import Choices
from qkv.data.readers.text import Text
from qkv.data.readers.time_series import TimeSeries
from qkv.data.source import Source


def entries(source: Source) -> list[Any]:
    table = source.open("train")  # type: ignore[attr-defined]
    return [table[i] for i in range(len(table))]


def written(path: Path, text: str, encoding: str = "utf-8") -> str:
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_one_column_needs_no_list(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", json.dumps({"q": "a", "options": ["x", "y"], "answer": 1}))
    (found,) = entries(Choices.from_dict({"path": path, "text": "q", "choices": "options"}))
    assert found["choices"] == ["x", "y"]
    assert Choices.from_dict({"choices": "options"}) == Choices(choices=("options",))
    assert Choices.from_dict({"missing": "?"}).missing == ("?",)
    assert TimeSeries.from_dict({"columns": "load"}).columns == ("load",)
    assert TimeSeries.from_dict({"columns": 2}).columns == (2,)
    assert Text.from_dict({"suffixes": ".md", "path": "a"}) == Text(suffixes=(".md",), path="a")


def test_candidates_that_are_objects_are_told(tmp_path: Path) -> None:
    options = [{"id": "pos", "text": "pos"}, {"id": "neg", "text": "neg"}]
    path = written(tmp_path / "x.jsonl", json.dumps({"text": "a", "choices": options, "answer": "pos"}))
    assert entries(Choices(path=path)) == ["with candidates that are no texts but objects"]


def test_choices_and_their_answers(tmp_path: Path) -> None:
    records = [{"text": "q", "choices": ["x", "y"], "answer": answer} for answer in (1, "0", "b", "y", "zz", 1.5, None)]
    records.append({"text": "q", "choices": ["x", ""], "answer": 0})
    path = written(tmp_path / "x.jsonl", "\n".join(map(json.dumps, records)))
    found = entries(Choices(path=path))
    assert [e["answer"] for e in found[:6]] == [1, 0, 1, 1, "zz", 1.5]
    assert found[6] == "without an answer" and found[7] == "without two candidates, or with an empty one"
    table = written(tmp_path / "x.csv", "q,one,two,three,B\n")
    (found,) = entries(Choices(path=table, text=0, choices=(1, 2, 3), answer=4))
    assert (found["choices"], found["answer"]) == (["one", "two", "three"], 1)
