"""Rows with labels from files of every layout, and what is said if a row or a file is no such thing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.readers.labelled_text import Labelled
from qkv.data.source import SPLITS, Counts, Source, read

ROWS = [("good, very good", "yes"), ('a "bad" one', "no"), ("so-so\nover two lines", "no")]


def entries(source: Source) -> list[Any]:
    table = source.open("train")  # type: ignore[attr-defined]
    return [table[i] for i in range(len(table))]


def written(path: Path, text: str, encoding: str = "utf-8") -> str:
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_csv_with_quotes_and_line_ends(named: bool, suffix: str, tmp_path: Path) -> None:
    lines = ["text,label\n"] * named + ['"{}",{}\n'.format(t.replace('"', '""'), y) for t, y in ROWS]
    path = written(tmp_path / f"x.{suffix}", "".join(lines))
    found = entries(Labelled(path=path) if named else Labelled(path=path, text=0, label=1))
    assert [(e["text"], e["label"]) for e in found] == ROWS
    assert [e["where"].rpartition(" ")[2] for e in found] == [str(n + named) for n in (1, 2, 3)]


def test_tsv_jsonl_and_lines(tmp_path: Path) -> None:
    tsv = written(tmp_path / "x.tsv", 'id\tone\ttwo\tscore\n7\ta "b\tc\t2.5\n')
    (found,) = entries(Labelled(path=tsv, text="one", pair="two", score="score"))
    assert {k: found[k] for k in ("text", "pair", "score")} == {"text": 'a "b', "pair": "c", "score": "2.5"}
    records = [{"text": "a", "y": {"z": 3}}, {"text": "b", "y": {"z": True}}, {"text": "c", "y": {"z": "n"}}]
    jsonl = written(tmp_path / "x.jsonl", "\n".join(map(json.dumps, records)))
    assert [e["label"] for e in entries(Labelled(path=jsonl, label="y.z"))] == ["3", "true", "n"]
    latin = written(tmp_path / "x.train", "1 caf\xe9 au lait\n0 non\n", "latin-1")
    found = entries(Labelled(path=latin, encoding="latin-1"))
    assert [(e["label"], e["text"]) for e in found] == [("1", "café au lait"), ("0", "non")]


def test_rows_that_lack_something_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", "text,label\ngood,1\n  ,1\nbad,\nonly\n")
    table, counts = Labelled(path=path).open("train"), Counts()
    assert len(read(table, range(len(table)), counts)) == 1
    assert dict(counts.skipped) == {"with an empty 'text'": 1, "without a 'label'": 2}


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("x.csv", "text,lable\na,1\n", {}, "has no column 'label'; did you mean 'lable'"),
        ("x.csv", "a,1\n", {"text": 0, "label": 4}, "has no column 4: it has 2, numbered from 0"),
        ("x.csv", "a,1\n", {"text": 0, "label": "y"}, "all named or all numbered"),
        ("x.csv", 'text,label\n"a,1\nb,2\n', {}, r"line 2, is not valid CSV"),
        ("x.jsonl", '{"text": 1}\n[]\n', {}, r"line 2, is not a JSON object but '\[\]'"),
        ("x.jsonl", "{\n", {}, "line 1, is not valid JSON"),
        ("x.txt", "1 caf\xe9\n", {}, "line 1, is not valid UTF-8; convert .* encoding, such as data.encoding=cp1252"),
        ("x.csv", "", {}, "is empty"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    name: str, text: str, options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path / name, text, "latin-1")
    with pytest.raises(ValueError, match=said):
        Labelled(path=path, **options).open("train")


def test_what_is_held_out_is_not_trained_on(tmp_path: Path) -> None:
    path = written(tmp_path / "x.txt", "".join(f"{i % 2} text {i}\n" for i in range(300)))
    source = Labelled(path=path)
    train, test = ({e["text"] for e in source.examples(split)} for split in ("train", "test"))
    assert len(train) == 240 and len(test) == 30 and not train & test


def test_other_separators_and_decimal_commas(tmp_path: Path) -> None:
    text = 'text|score\n"a | b"|3,5\nc, d|1\n'
    for name, sep in (("a.csv", "|"), ("a.txt", "pipe")):
        source = Labelled(path=written(tmp_path / name, text), score="score", sep=sep, decimal=",")
        assert [(e["text"], e["score"]) for e in entries(source)] == [("a | b", "3.5"), ("c, d", "1")]
    tabs = written(tmp_path / "b.csv", "good, very\tyes\nbad\tno\n")
    assert [e["label"] for e in entries(Labelled(path=tabs, text=0, label=1, sep="tab"))] == ["yes", "no"]


def test_a_json_file_that_is_one_list(tmp_path: Path) -> None:
    records = [{"text": f"t{i}", "label": i % 2} for i in range(3)]
    path = tmp_path / "x.json"
    for text in (
        json.dumps(records),
        json.dumps(records, indent=2),
        "".join(json.dumps(one) + "\n" for one in records),
    ):
        path.write_text(text)
        table = Labelled(path=str(path)).open("train")
        assert [(table[i]["text"], table[i]["label"]) for i in range(3)] == [("t0", "0"), ("t1", "1"), ("t2", "0")]  # type: ignore[index]
    path.write_text('[{"text": "a", "label": 1}, 3]')
    with pytest.raises(ValueError, match=r"x\.json', entry 2 is not a JSON object but 3"):
        Labelled(path=str(path)).open("train")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_column_tells_the_split_of_each_row(suffix: str, tmp_path: Path) -> None:
    rows = [{"text": f"t{i}", "label": "ab"[i % 2], "set": ("train", "Dev", "TEST")[i % 3]} for i in range(12)]
    text = {"csv": "text,label,set\n" + "".join(",".join(row.values()) + "\n" for row in rows)}
    text["jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    source = Labelled(path=written(tmp_path / f"x.{suffix}", text[suffix]), split="set")
    for number, split in enumerate(SPLITS):
        table = source.table(split)
        assert [table[i]["text"] for i in range(len(table))] == [row["text"] for row in rows[number::3]]
    assert not any("held out" in note for note in source.notes())
    shared = written(tmp_path / "y.csv", "text,label,set\na,x,train\nb,y,train\na,x,test\nc,x,val\n")
    assert (
        "1 of 1 test examples share their first text with training examples"
        in Labelled(path=shared, split="set").notes()
    )
    wrong = written(tmp_path / "z.csv", "text,label,set\na,x,train\nb,y,later\n")
    with pytest.raises(
        ValueError, match="line 3: 'set' is 'later', which names no split; write train, validation or test"
    ):
        Labelled(path=wrong, split="set").table("train")
    with pytest.raises(ValueError, match="leave these out, or ignore the column with split=null"):
        Labelled(path=wrong, split="set", test_path=wrong)
