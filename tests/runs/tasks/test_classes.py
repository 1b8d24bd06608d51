"""Class labels and class predictions: probabilities, unknown classes, and pairs of texts in lines."""

from __future__ import annotations

import pytest
import torch

from qkv.data.source import Skipped
from qkv.runs.tasks.classes import classified, known_class, likeliest, predictions, split_pairs


def test_probabilities_are_in_descending_order() -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0]])
    (one,) = classified(["a", "b", "c"], scores)
    assert one.label == "b" and list(one.probabilities) == ["b", "c", "a"]
    assert list(one.probabilities.values()) == pytest.approx(scores.softmax(-1)[0][[1, 2, 0]].tolist())
    (several,) = classified(["a", "b", "c"], scores, several=True)
    assert several.probabilities["a"] == 0.5 and sum(several.probabilities.values()) > 1
    assert likeliest(one) == "b 0.665  c 0.245  a 0.090"
    assert [made.text for made in predictions(["x"], [one])] == ["b 0.665  c 0.245  a 0.090\tx"]


def test_an_unknown_class_is_skipped_or_refused() -> None:
    assert known_class({"label": 1}, ["0", "1"], "raise") == 1
    assert known_class({"label": "z"}, ["x", "y"], "skip") == Skipped("of a class unseen in training")
    with pytest.raises(
        ValueError, match=r"'t.csv', line 3: the class 'z' is not in the training data; .*on_error=skip"
    ):
        known_class({"label": "z", "where": "'t.csv', line 3"}, ["x", "y"], "raise")


def test_lines_are_all_texts_or_all_pairs() -> None:
    assert split_pairs(["a", "b"]) == (["a", "b"], None)
    assert split_pairs(["a\tb", "c\td"]) == (["a", "c"], ["b", "d"])
    with pytest.raises(ValueError, match="give texts, or TEXT<tab>TEXT for every one of them"):
        split_pairs(["a", "b\tc"])
