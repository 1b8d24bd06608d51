"""Rows as examples: columns, names of classes, and rows that are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data.readers.hub_datasets import Datasets
from qkv.data.readers.rows import RowReader, class_names_of, flat, row_hold_out_key
from qkv.data.source import Skipped


def rows(**settings: str) -> Datasets:
    return Datasets(path="none", **settings)  # type: ignore[arg-type]


def read(row: dict[str, Any], **settings: Any) -> Any:
    return RowReader(**settings).example(row, "row 1")


def test_columns_are_found_by_name_and_inside_others() -> None:
    row = {"translation": {"en": " a b ", "de": "c d"}, "id": 3}
    found = read(row, columns={"source": "translation.en", "target": "translation.de"})
    assert (found["source"], found["target"]) == ("a b", "c d") and found["where"] == "row 1"
    assert read({"a.b": "x"}, columns={"text": "a.b"})["text"] == "x", "a column may have a dot in its name"
    with pytest.raises(ValueError, match="row 1 has no column 'txt'; did you mean 'text'"):
        read({"text": "x"}, columns={"text": "txt"})


def test_numbers_of_classes_have_their_names_and_minus_one_is_missing() -> None:
    names = {"y": ("bad", "good")}
    columns = {"text": "t", "label": "y"}
    assert read({"t": "x", "y": np.int64(1)}, columns=columns, class_names=names)["label"] == "good"
    missing = read({"t": "x", "y": -1}, columns=columns, class_names=names)["label"]
    assert isinstance(missing, Skipped)
    with pytest.raises(ValueError, match="a class has the number 2, and there are names for 2: bad, good"):
        read({"t": "x", "y": 2}, columns=columns, class_names=names)


@pytest.mark.parametrize(("value", "label"), [(True, "true"), (np.bool_(False), "false"), (3, "3"), ("x", "x")])
def test_classes_are_texts(value: Any, label: str) -> None:
    assert read({"text": "a", "label": value})["label"] == label


def test_what_lacks_a_text_or_a_required_field_is_skipped() -> None:
    columns = {"text": "a", "label": "b"}
    assert isinstance(read({"a": None, "b": 1}, columns=columns), Skipped)
    assert isinstance(read({"a": "x", "b": float("nan")}, columns=columns, required=("label",)), Skipped)
    kept = read({"a": "x", "b": "n/a"}, columns=columns, missing=())
    assert kept["label"] == "n/a"


def test_answers_have_the_usual_forms() -> None:
    fields = {"question": "who ?", "context": "it was Ada ."}
    one = read({**fields, "answers": {"text": ["Ada"], "answer_start": np.array([7])}})
    other = read({**fields, "answer": "Ada", "start": 7})
    assert one["answers"] == other["answers"]
    with pytest.raises(ValueError, match="there are 2 answers and 1 starts"):
        read({**fields, "answers": ["Ada", "it"], "starts": [7]})
    assert row_hold_out_key(one) == row_hold_out_key(other) != row_hold_out_key({"context": "other"})
    assert row_hold_out_key({"text": "a"}) is None


def test_the_labels_of_candidates_give_the_answers_number() -> None:
    choices = {"text": ["x", "y", "z"], "label": ["p", "q", "r"]}
    by_label = read({"text": "q", "choices": choices, "answer": "r"})
    by_number = read({"text": "q", "choices": ["x", "y", "z"], "answer": 2})
    assert by_label["answer"] == by_number["answer"] == 2 and list(by_label["choices"]) == ["x", "y", "z"]


def test_words_make_a_text_and_tags_are_texts() -> None:
    found = read({"words": np.array(["a", "b"]), "tags": [1, "X"]}, columns={"words": "words", "tags": "tags"})
    assert found["text"] == "a b" and found["words"] == ["a", "b"] and found["tags"] == ["1", "X"]


def test_names_of_classes_are_found_in_features() -> None:
    label = {"_type": "ClassLabel", "names": ["a", "b"]}
    features = {
        "y": label,
        "tags": {"_type": "Sequence", "feature": label},
        "t": {"z": [label]},
        "n": {"_type": "Value"},
    }
    assert class_names_of(features, ["y", "tags", "t.z", "n", "none"]) == {
        key: ["a", "b"] for key in ("y", "tags", "t.z")
    }


def test_columns_of_fields_are_chosen_among_those_that_are_there() -> None:
    source = rows(label="y")
    assert source.columns_among(["text", "y", "z"], "here") == {"label": "y", "text": "text"}
    assert dict(rows().columns_among(["tokens", "ner_tags"], "here")) == {"words": "tokens", "tags": "ner_tags"}
    assert list(flat({"choices": ("a", "b"), "text": "t"})) == ["a", "b", "t"]
    with pytest.raises(ValueError, match=r"here has the columns a, b; name those to read, such as data\.text=a"):
        rows().columns_among(["a", "b"], "here")
    with pytest.raises(ValueError, match="here has no column 'x'"):
        rows(text="x.y").columns_among(["a", "b"], "here")
    for wrong in ({"source": "a"}, {"source": "a", "target": "b", "text": "c"}):
        with pytest.raises(ValueError, match="source and target"):
            rows(**wrong)
