"""Labels that are missing: what pandas and people write for them, in every form of file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
from pandas._libs.parsers import STR_NA_VALUES

from qkv.data.classes import MISSING, class_name
from qkv.data.memory import Memory
from qkv.data.readers.labelled_text import Labelled
from qkv.data.readers.multiple_choice import Choices
from qkv.data.readers.parquet import Parquet
from qkv.data.source import Skipped
from qkv.runs.recipes.guess import guess
from qkv.runs.tasks.text_classification.task import Classify


def entries(source: Any) -> list[Any]:
    table = source.open("train")
    return [table[i] for i in range(len(table))]


def test_missing_texts_match_pandas() -> None:
    assert set(MISSING) == STR_NA_VALUES - {""}


def frame() -> pandas.DataFrame:
    return pandas.DataFrame(
        {"text": [f"a text {i}" for i in range(6)], "label": ["x", "y", None, "x", float("nan"), "y"]}
    )


@pytest.mark.parametrize("form", ["csv", "nan.csv", "tsv", "jsonl", "parquet"])
def test_what_pandas_writes_for_missing_labels_is_skipped(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"t.{form}"
    if form == "parquet":
        frame().to_parquet(path)
    elif form == "jsonl":
        frame().to_json(path, orient="records", lines=True)
    else:
        frame().to_csv(path, index=False, sep="\t" if form == "tsv" else ",", na_rep="nan" if "nan" in form else "")
    read = entries(Labelled(path=str(path), text="text", label="label"))
    labels = [one["label"] for one in read if not isinstance(one, Skipped)]
    assert labels == list(frame()["label"].dropna()) == ["x", "y", "x", "y"]
    reasons = {str(one) for one in read if isinstance(one, Skipped)}
    assert reasons <= {"without a 'label'", "whose 'label' is 'nan' (one of data.missing)"}


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "rows of parquet", "frame"])
def test_a_text_for_no_label_may_be_a_class_if_the_user_says_so(tmp_path: Path, form: str, missing: str) -> None:
    table, path = pandas.DataFrame({"text": ["one text", "another"], "label": ["x", missing]}), tmp_path / "t"
    if form == "csv":
        table.to_csv(path, index=False)
    elif form == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif "parquet" in form:
        table.to_parquet(path)
    columns: dict[str, Any] = {"text": "text", "label": "label"}
    if form == "frame":
        sources = [Memory.of(table, columns=columns).replace(missing=given) for given in (None, ())]
    elif form == "rows of parquet":
        sources = [Parquet(path=str(path), missing=given, **columns) for given in (None, ())]
    else:
        sources = [Labelled(path=str(path), format=form, missing=given, **columns) for given in (None, ())]  # type: ignore[arg-type]
    skipped, kept = map(entries, sources)
    why = getattr(skipped[1], "get", lambda _: skipped[1])("label")
    assert skipped[0]["label"] == "x" and why == Skipped(f"whose 'label' is {missing!r} (one of data.missing)")
    assert kept[1]["label"] == missing


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("form", ["parquet", "frame"])
def test_rows_without_a_label_are_skipped_whether_or_not_its_column_is_named(
    tmp_path: Path, form: str, named: bool
) -> None:
    columns = {"text": "text", "label": "label"} if named else {}
    frame().to_parquet(tmp_path / "t.parquet")
    source = (
        Memory.of(frame(), columns=columns) if form == "frame" else Parquet(path=str(tmp_path / "t.parquet"), **columns)  # type: ignore[arg-type]
    )
    task = Classify(classes=("x", "y"))
    read = [one if isinstance(one, Skipped) else task.labels(one, None) for one in entries(source)]  # type: ignore[arg-type]
    assert [("x", "y")[int(one)] for one in read if not isinstance(one, Skipped)] == list(frame()["label"].dropna())
    assert {str(one) for one in read if isinstance(one, Skipped)} == {"without a 'label'"}
    task.check_labels(source)


def test_numbers_of_classes_stay_whole_beside_missing_ones() -> None:
    """A data frame holds whole numbers beside missing ones as floating-point numbers."""
    table = pandas.DataFrame({"text": list("abcd"), "label": [1, None, 0, 3]})
    names = [class_name(one["label"]) for one in entries(Memory.of(table))]
    assert names[0] == "1" and names[1] is None and names[2:] == ["0", "3"]
    assert class_name(1.5) is None and class_name(float("inf")) is None


@pytest.mark.parametrize("score", ["", "nan", "NA"])
def test_missing_scores_are_skipped(tmp_path: Path, score: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"text,score\na,1.5\nb,{score}\n")
    first, second = entries(Labelled(path=str(path), text="text", score="score"))
    assert first["score"] == "1.5" and isinstance(second, Skipped)


def test_missing_answers_are_skipped_unless_a_candidate_has_the_name(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text,a,b,answer\nq,None,all,None\nq,one,two,None\nq,one,two,\nq,one,two,two\n")
    read = entries(Choices(path=str(path), choices=("a", "b")))
    assert read[0]["answer"] == 0 and read[3]["answer"] == 1
    assert [str(one) for one in read[1:3]] == [
        "whose 'answer' is 'None' (one of data.missing)",
        "without an answer",
    ]


def test_the_guess_counts_missing_labels_and_ragged_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"this is the text {i},{('ham', 'spam', 'nan', '')[i % 4]}" for i in range(80)]
    rows[10] += ",more"
    rows[20] = "only a text"
    path.write_text("\n".join(["text,label", *rows]))
    seen = "\n".join(guess(path).seen)
    assert "label is the class, one of 2: spam (20), ham (19)" in seen
    assert "39 of 78 cells of label that were looked at are missing (empty, nan)" in seen
    assert "1 row of 't.csv' with more cells than the 2 columns (line 12) is refused" in seen
    assert "1 row of the first 80 of 't.csv' with fewer cells than the 2 columns (line 22)" in seen
    kept = guess(path, settings=["data.missing=[]"]).seen
    assert "one of 3" in "\n".join(kept)


@pytest.mark.parametrize("form", ["frame", "parquet"])
def test_rows_without_a_text_are_skipped_whether_or_not_its_column_is_named(tmp_path: Path, form: str) -> None:
    table = frame()
    table["text"] = [float("nan"), "one", None, "two", "three", "four"]
    table.to_parquet(tmp_path / "t.parquet")
    source = Memory.of(table) if form == "frame" else Parquet(path=str(tmp_path / "t.parquet"))
    read = entries(source)
    assert [one["text"] for one in read if not isinstance(one, Skipped)] == list(table["text"].dropna())
    assert {str(one) for one in read if isinstance(one, Skipped)} == {"without a text 'text'"}
    if isinstance(source, Memory):
        assert not isinstance(source.first, Skipped) and source.first["text"] == "one"


def test_a_pair_without_its_second_text_is_not_read_as_one_text() -> None:
    table = pandas.DataFrame({"text": ["a", "b"], "pair": ["c", None], "label": ["x", "y"]})
    first, second = entries(Memory.of(table))
    assert first["pair"] == "c" and second == Skipped("without a text 'pair'")


def test_a_picture_needs_no_text() -> None:
    table = pandas.DataFrame({"text": [None, "a"], "image": ["1.png", "2.png"], "label": ["x", "y"]})
    assert [one["label"] for one in entries(Memory.of(table))] == ["x", "y"]
