"""Accuracy, F1 and Matthews' correlation of text classification, compared with scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from qkv.core.batch import Batch
from qkv.runs.tasks.text_classification.metric import ClassMetric


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


def test_confusions_count_the_pairs_that_occur() -> None:
    metric = ClassMetric(["bad", "good", "never"])
    judged(metric, [0, 1, 1, 1], [0, 1, 0, 1])
    assert metric.confusions() == [("bad", "bad", 1), ("good", "bad", 1), ("good", "good", 2)]


def test_examples_are_ranked_by_the_probability_of_the_true_class() -> None:
    metric = ClassMetric(["bad", "good"])
    texts = tuple({"text": name} for name in "abcd")
    odds = torch.tensor([0.9, 0.2, 0.6, 0.4])  # of "good", which is the truth
    outputs = torch.stack([1 - odds, odds], 1).log()
    metric.update(outputs, Batch({}, torch.ones(4, dtype=torch.int64), texts=texts))
    extremes = metric.extremes()
    assert extremes is not None and extremes.by == "true_class_probability"
    assert [one["source"] for one in extremes.best] == ["a", "c"]
    assert extremes.worst[0] == {"source": "b", "target": "good", "output": "bad", "score": pytest.approx(0.2)}
