"""Losses of several batches sum to the loss of one large batch, term by term."""

from __future__ import annotations

import pytest
import torch

from qkv.core.batch import Term
from qkv.training.gradients.accumulation import over_labels, reported, weighed


def test_two_batches_weigh_as_one() -> None:
    """(2 + 4 + 9) / 5 labels, and 0.1 · (3 + 5) / 2 images."""
    batches = [({"loss": 2, "aux": 1}, 6.0, 3.0), ({"loss": 3, "aux": 1}, 9.0, 5.0)]
    totals = {"loss": 5, "aux": 2}
    parts = [
        weighed(
            {"loss": Term(torch.tensor(loss), counts["loss"]), "aux": Term(torch.tensor(aux), 1, weight=0.1)}, totals
        )
        for counts, loss, aux in batches
    ]
    assert float(sum(parts)) == pytest.approx(15 / 5 + 0.1 * 8 / 2)


def test_a_term_that_counts_labels_is_divided_by_the_labels() -> None:
    terms = {"loss": Term(torch.tensor(6.0), 3), "z": Term(torch.tensor(12.0), 3), "pairs": Term(torch.tensor(1.0), 3)}
    found = over_labels(terms, {"loss": 3, "pairs": 3})
    assert {name: term.over for name, term in found.items()} == {"loss": None, "z": "loss", "pairs": None}
    assert float(weighed(found, {"loss": 6, "pairs": 1})) == 6 / 6 + 12 / 6 + 1
    assert over_labels({"z": Term(torch.tensor(1.0), 2)}, {"loss": 3})["z"].over is None


def test_what_is_reported_may_differ_from_what_is_summed() -> None:
    terms = {"loss": Term(torch.tensor(6.0), 3, value=torch.tensor(9.0)), "z": Term(torch.tensor(4.0), 3, over="loss")}
    found = reported(terms, {"loss": torch.tensor(3)})
    assert {name: float(value) for name, value in found.items()} == {"loss": 3.0, "z": pytest.approx(4 / 3)}


def test_nothing_to_divide_by_is_divided_by_one() -> None:
    terms = {"loss": Term(torch.tensor(0.0), 0)}
    assert float(weighed(terms, {"loss": 0})) == 0.0 == float(weighed(terms, {"loss": torch.tensor(0.0)}))


def test_terms_without_a_count_and_no_terms_are_refused() -> None:
    with pytest.raises(ValueError, match="term 'z' has no count before the forward pass"):
        weighed({"z": Term(torch.tensor(1.0), 1)}, {"loss": 1})
    with pytest.raises(ValueError, match="gave no loss term"):
        weighed({}, {"loss": 1})
