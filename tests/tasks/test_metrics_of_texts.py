"""Metrics of classes and numbers, against scikit-learn's and SciPy's, and of candidates and cosines by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.batch import Batch
from qkv.metrics.correlation import correlations
from qkv.tasks.multiple_choice.metric import ChoiceMetric
from qkv.tasks.text_classification.metric import ClassMetric
from qkv.tasks.text_regression.metric import NumberMetric
from qkv.tasks.text_similarity.metric import SimilarityMetric


def judged(metric: ClassMetric, truth: list[int], said: list[int]) -> dict[str, float]:
    for start in range(0, len(truth), 7):  # in batches
        some = slice(start, start + 7)
        outputs = torch.nn.functional.one_hot(torch.tensor(said[some]), len(metric.names)).float()
        texts = tuple({"text": str(i)} for i in truth[some])
        metric.update(outputs, Batch({}, torch.tensor(truth[some]), texts=texts))
    return {name: one.value for name, one in metric.compute().items()}


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
def test_classes_are_measured_as_scikit_learn_does(classes: int) -> None:
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    random = np.random.default_rng(classes)
    for n in (1, 3, 40, 300):
        truth, said = (random.integers(0, classes, n).tolist() for _ in range(2))
        found = judged(ClassMetric([f"c{i}" for i in range(classes)]), truth, said)
        assert found["accuracy"] == pytest.approx(accuracy_score(truth, said))
        assert found["macro_f1"] == pytest.approx(f1_score(truth, said, average="macro"))
        assert found["mcc"] == pytest.approx(matthews_corrcoef(truth, said))
        if classes == 2:
            assert found["f1"] == pytest.approx(f1_score(truth, said, zero_division=0))


def test_f1_says_of_which_class() -> None:
    metric = ClassMetric(["bad", "good"])
    judged(metric, [0, 1, 1], [0, 1, 0])
    assert metric.compute()["f1"] == (pytest.approx(2 / 3), "of 'good'")
    assert metric.samples(1) == [{"source": "1", "target": "good", "output": "good"}]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=30))
def test_correlations_are_scipys(pairs: list[tuple[int, int]]) -> None:
    from scipy.stats import pearsonr, spearmanr

    a, b = (list(map(float, side)) for side in zip(*pairs, strict=True))
    found = correlations(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found["spearman"].value == found["pearson"].value == 0
    else:
        assert found["spearman"].value == pytest.approx(spearmanr(a, b).statistic, abs=1e-9)
        assert found["pearson"].value == pytest.approx(pearsonr(a, b).statistic, abs=1e-9)


def test_numbers_are_shown_as_they_are_meant() -> None:
    metric = NumberMetric(lambda x: 2 * x + 1)
    metric.update(
        torch.tensor([[0.5], [2.0]]),
        Batch({}, torch.tensor([0.0, 1.0]), texts=({"text": "a", "pair": "b"}, {"text": "c"})),
    )
    assert metric.samples(2)[0] == {"source": "a | b", "target": "1.00", "output": "2.00", "graded": True}
    assert metric.compute()["spearman"].value == pytest.approx(1)


def test_the_candidate_with_the_highest_score_is_chosen() -> None:
    metric = ChoiceMetric()
    texts = ({"text": "p", "choices": ["x", "y"]}, {"text": "q", "choices": ["u", "v", "w"]})
    rows = torch.tensor([[0, 1, -1], [2, 3, 4]])
    metric.update(
        torch.tensor([[-5.0], [-4.0], [0.0], [3.0], [2.0]]),
        Batch({}, torch.tensor([1, 2]), targets={"rows": rows}, texts=texts),
    )
    assert metric.compute()["accuracy"].value == 0.5
    assert metric.samples(2) == [
        {"source": "p", "target": "y", "output": "y"},
        {"source": "q", "target": "w", "output": "v"},
    ]


def test_cosines_go_with_scores_or_find_their_own() -> None:
    vectors = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, -1.0], [1.0, 1.0], [0.0, 3.0]])
    rows, texts = torch.tensor([[0, 1], [2, 3], [4, 5]]), tuple({"text": c} for c in "abc")
    metric = SimilarityMetric()
    metric.update(vectors, Batch({}, torch.tensor([1.0, 0.0, 0.5]), targets={"rows": rows}, texts=texts))
    assert metric.compute()["spearman"].value == pytest.approx(1)
    assert [s["output"] for s in metric.samples(3)] == ["1.00", "-0.71", "0.71"]
    without = SimilarityMetric()
    without.update(vectors, Batch({}, None, targets={"rows": rows}, texts=texts))
    assert without.compute()["accuracy"].value == pytest.approx(1 / 3)
