"""Classes by name: what counts as one, their order, and examples that have none or another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data.classes import (
    check_classes,
    class_index,
    class_name,
    classes_of_source,
    different,
    joined,
    label_of,
    sorted_classes,
    spellings,
)
from qkv.data.source import Skipped, Source, Split, Table
from qkv.data.task import Task
from qkv.runs.tasks.detection.task import Detect
from qkv.runs.tasks.multiple_choice.task import Choice
from qkv.runs.tasks.segmentation.task import Segment
from qkv.runs.tasks.tagging.task import Tag
from qkv.runs.tasks.text_classification.task import Classify
from qkv.runs.tasks.text_regression.task import Regress


class Labels(Source, kind="labels-test"):
    labels: tuple[str, ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"label": label, "where": f"row {i}"} for i, label in enumerate(self.labels)]


@pytest.mark.parametrize(
    "label, name", [("cat", "cat"), (3, "3"), (np.int64(4), "4"), (True, None), (1.5, None), (None, None), ([], None)]
)
def test_names_are_texts_and_whole_numbers(label: Any, name: str | None) -> None:
    assert class_name(label) == name


def test_numbers_stand_by_size_before_words() -> None:
    assert sorted_classes({"10", "9", "b", "a"}) == ("9", "10", "a", "b")


def test_classes_of_a_source() -> None:
    assert classes_of_source(Labels(labels=("b", "10", "9", "b"))) == ("9", "10", "b")
    with pytest.raises(ValueError, match=r"1 class \(b\); there have to be two"):
        classes_of_source(Labels(labels=("b", "b")))
    with pytest.raises(ValueError, match="row 1 has no label"):
        classes_of_source(Labels(labels=("b", "")))
    with pytest.raises(ValueError, match="10,001 different labels"):
        classes_of_source(Labels(labels=tuple(map(str, range(10_001)))))


def test_another_class_is_refused_or_skipped() -> None:
    example = {"label": "dog", "where": "row 7"}
    assert label_of(example) == "dog" and class_index(example, ("cat", "dog"), "raise") == 1
    with pytest.raises(ValueError, match=r"row 7: there is no class 'dog' .* task.on_error=skip"):
        class_index(example, ("cat", "dogs"), "raise")
    assert isinstance(class_index(example, ("cat",), "skip"), Skipped)


def test_classes_of_another_split_are_known_before_training() -> None:
    source = Labels(labels=("a", "b", "c", "c"))
    check_classes(source, "test", ("a", "b", "c", "d"))
    with pytest.raises(ValueError, match=r"the test split has a class .* lack: 'c' \(2 examples, first row 2\)"):
        check_classes(source, "test", ("a", "b"))
    with pytest.raises(ValueError, match=r"2 classes .* examples of them, or skip such examples with task\.on_error"):
        check_classes(source, "validation", ("a",))


def test_large_numbers_are_compared_to_the_last_digit() -> None:
    apart = ["9007199254740992", "9007199254740993", "1234567", "1234568", "0.1", "0.10000000000000001", "1e400", "inf"]
    assert spellings(apart) == []
    assert spellings([*apart, "9007199254740993.0", "01234567"]) == [
        ["9007199254740993", "9007199254740993.0"],
        ["1234567", "01234567"],
    ]


def test_spellings_of_one_class_are_found() -> None:
    names = [
        "Business",
        "sport",
        "BUSINESS ",
        "business",
        "sci-fi",
        "Sci Fi",
        "1",
        "1.0",
        "01",
        "2",
        "ｓｐｏｒｔ",
        "sport\u200b",
    ]
    groups = [
        ["Business", "BUSINESS ", "business"],
        ["sport", "ｓｐｏｒｔ", "sport\u200b"],
        ["sci-fi", "Sci Fi"],
        ["1", "1.0", "01"],
    ]
    assert spellings(names) == groups
    assert different(groups[0]).startswith(
        "'Business', 'BUSINESS ', 'business' are 3 classes that differ only in spelling"
    )


class Splits(Source, kind="splits-test"):
    """The same examples in each split, but with `other` in the test split."""

    rows: tuple[dict[str, Any], ...]
    other: dict[str, Any]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [*self.rows, *([{**self.other, "where": "row 7"}] if split == "test" else [])]


@pytest.mark.parametrize(
    ("task", "train", "other", "said"),
    [
        (Classify(classes=("a",)), {"text": "x", "label": "a"}, {"text": "y", "label": None}, "row 7 has no label"),
        (Classify(classes=("a",)), {"text": "x", "label": "a"}, {"text": "y"}, "row 7 has no label"),
        (
            Classify(classes=("a",)),
            {"text": "x", "label": "a"},
            {"label": 1.5},
            "row 7 has the label 1.5, which is no class",
        ),
        (
            Choice(),
            {"text": "q", "choices": ["a", "b"], "answer": 1},
            {"text": "q", "choices": ["a", "b"], "answer": 2},
            "row 7: the answer is 2, and there are 2 candidates",
        ),
        (
            Detect(classes=("cat",)),
            {"names": ["cat"]},
            {"names": ["cow"]},
            r"the test split has objects of classes that the training data lack: 'cow' \(1 object, first row 7\)",
        ),
        (
            Segment(classes=("a", "b"), values=(0, 1)),
            {"mask": np.zeros((2, 2), np.uint8)},
            {"mask": np.full((2, 2), 9, np.uint8)},
            "row 7: the mask holds 9, and the classes are 0, 1",
        ),
        (
            Regress(),
            {"text": "x", "score": 1.0},
            {"text": "x", "score": "inf"},
            "row 7: the score is 'inf', which is no finite number",
        ),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_labels_of_all_splits_are_checked_before_training(task: Task, train: Any, other: Any, said: str) -> None:
    assert task.check_labels(Splits(rows=(train,), other=train)) == []
    with pytest.raises(ValueError, match=said):
        task.check_labels(Splits(rows=(train,), other=other))
    if "on_error" in type(task).model_fields:
        task.replace(on_error="skip").check_labels(Splits(rows=(train,), other=other))


def test_tags_that_training_lacks_are_told() -> None:
    train, other = ({"words": ["a", "b"], "tags": [tag, "O"]} for tag in ("B-X", "B-Y"))
    (note,) = Tag(tags=("O", "B-X")).check_labels(Splits(rows=(train,), other=other))
    assert note.startswith("the test split has 1 tag that the training data lack, and which therefore count as errors")
    assert note.endswith(": 'B-Y' (1 word, first row 7)")


def test_a_sign_or_a_mark_at_an_end_is_no_spelling() -> None:
    assert spellings(["1", "-1", "A", "A-", "A+", "x"]) == []
    assert spellings(["-1", "-1.0", "a-b", "A b"]) == [["-1", "-1.0"], ["a-b", "A b"]]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("red;blue", "red;green", "green; blue"), True),
        (("a|b", "b|c", "a", "c"), True),
        (("New York, NY", "Albany, NY", "Boston, MA"), False),  # parts that no other class has
        (("a;b", "a", "b"), False),  # one of them may be a name
        (("red", "blue"), False),
    ],
)
def test_classes_that_look_like_several_labels(names: tuple[str, ...], found: bool) -> None:
    assert bool(joined(names)) is found


def test_equal_numbers_have_one_order_in_every_process() -> None:
    names = ["1", "01", "001", "2", "b", "a"]
    assert {sorted_classes(names[i:] + names[:i]) for i in range(6)} == {("001", "01", "1", "2", "a", "b")}
