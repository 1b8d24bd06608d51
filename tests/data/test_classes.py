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
    label_of,
    sorted_classes,
    spellings,
)
from qkv.data.source import Skipped, Source, Split, Table


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


def test_spellings_of_one_class_are_found() -> None:
    names = ["Business", "sport", "BUSINESS ", "business", "sci-fi", "Sci Fi", "1", "1.0", "01", "2", "ｓｐｏｒｔ"]
    groups = [["Business", "BUSINESS ", "business"], ["sport", "ｓｐｏｒｔ"], ["sci-fi", "Sci Fi"], ["1", "1.0", "01"]]
    assert spellings(names) == groups
    assert different(groups[0]).startswith(
        "'Business', 'BUSINESS ', 'business' are 3 classes that differ only in spelling"
    )
