"""IoU of classes from a confusion matrix, compared with scikit-learn's Jaccard index."""

from __future__ import annotations

import numpy as np

from qkv.core.metrics.intersection_over_union import ious


def test_ious_are_the_jaccard_index() -> None:
    from sklearn.metrics import confusion_matrix, jaccard_score

    truth, predicted = np.random.default_rng(0).integers(0, 4, (2, 300))
    found = ious(confusion_matrix(truth, predicted))
    np.testing.assert_allclose(found, jaccard_score(truth, predicted, average=None))


def test_a_class_in_neither_is_not_a_number() -> None:
    found = ious(np.array([[2, 1, 0], [0, 1, 0], [0, 0, 0]]))
    assert found[:2].tolist() == [2 / 3, 1 / 2] and np.isnan(found[2])
