"""F1 and Matthews' correlation from a confusion matrix, compared with scikit-learn, and classes that do not occur."""

from __future__ import annotations

import numpy as np
import pytest

from qkv.core.metrics.classification import f1, mcc


@pytest.mark.parametrize("classes", [2, 5])
def test_f1_and_mcc_match_scikit_learn(classes: int) -> None:
    from sklearn.metrics import confusion_matrix, f1_score, matthews_corrcoef

    random = np.random.default_rng(classes)
    truth, predicted = random.integers(0, classes, (2, 200))
    table = confusion_matrix(truth, predicted)
    np.testing.assert_allclose(f1(table), f1_score(truth, predicted, average=None))
    assert mcc(table) == pytest.approx(matthews_corrcoef(truth, predicted))


def test_a_class_that_never_occurs_has_no_f1() -> None:
    scores = f1(np.array([[3, 1, 0], [0, 2, 0], [0, 0, 0]]))
    assert scores[:2].tolist() == pytest.approx([6 / 7, 4 / 5]) and np.isnan(scores[2])


def test_one_class_on_a_side_does_not_correlate() -> None:
    assert mcc(np.array([[2, 0], [3, 0]])) == 0
    assert mcc(np.array([[0, 2], [3, 0]])) == pytest.approx(-1)
