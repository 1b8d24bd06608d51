"""Classes by name: what counts as one, their order, and examples that have none or another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qkv.data.classes import in_order, label_of, named, number_of, of_source
from qkv.data.source import Skipped, Source, Split, Table


class Labels(Source, kind="labels-test"):
    labels: tuple[str, ...]

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        return [{"label": label, "where": f"row {i}"} for i, label in enumerate(self.labels)]


@pytest.mark.parametrize(
    "label, name", [("cat", "cat"), (3, "3"), (np.int64(4), "4"), (True, None), (1.5, None), (None, None), ([], None)]
)
def test_names_are_texts_and_whole_numbers(label: Any, name: str | None) -> None:
    assert named(label) == name


def test_numbers_stand_by_size_before_words() -> None:
    assert in_order({"10", "9", "b", "a"}) == ("9", "10", "a", "b")


def test_classes_of_a_source() -> None:
    assert of_source(Labels(labels=("b", "10", "9", "b"))) == ("9", "10", "b")
    with pytest.raises(ValueError, match=r"1 class \(b\); there have to be two"):
        of_source(Labels(labels=("b", "b")))
    with pytest.raises(ValueError, match="row 1 has no label"):
        of_source(Labels(labels=("b", "")))
    with pytest.raises(ValueError, match="10,001 different labels"):
        of_source(Labels(labels=tuple(map(str, range(10_001)))))


def test_another_class_is_refused_or_skipped() -> None:
    example = {"label": "dog", "where": "row 7"}
    assert label_of(example) == "dog" and number_of(example, ("cat", "dog"), "refuse") == 1
    with pytest.raises(ValueError, match=r"row 7: there is no class 'dog' .* task.on_error=skip"):
        number_of(example, ("cat", "dogs"), "refuse")
    assert isinstance(number_of(example, ("cat",), "skip"), Skipped)
