"""What is no number is no answer: outputs with NaN are measured as NaN by every metric, and nothing at all as nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from qkv.core.batch import Batch
from qkv.core.metrics.base import Metric
from qkv.core.metrics.correlation import correlations
from qkv.nn.layers.boxes import centered
from qkv.nn.models.heads.vision import Objects
from qkv.runs.tasks.detection.metric import BoxMetric
from qkv.runs.tasks.forecasting.metric import ForecastMetric
from qkv.runs.tasks.image_classification.metric import ImageClassMetric
from qkv.runs.tasks.multiple_choice.metric import ChoiceMetric
from qkv.runs.tasks.question_answering.metric import AnswerMetric
from qkv.runs.tasks.segmentation.metric import SegmentationMetric
from qkv.runs.tasks.sound_classification.metric import SoundClassMetric
from qkv.runs.tasks.tagging.metric import TagMetric
from qkv.runs.tasks.text_classification.metric import ClassMetric
from qkv.runs.tasks.text_regression.metric import NumberMetric
from qkv.runs.tasks.text_similarity.metric import SimilarityMetric
from qkv.runs.tasks.tokens import TokenMetric

NAMES = tuple("abcdefg")
LABELS = torch.tensor([0, 1, 0, 2])
PLAIN = (0.0,) * 3, (1.0,) * 3
SCORES = torch.nn.functional.one_hot(LABELS, 7).float()
FIGURES = [{"image": torch.zeros(3, 2, 2).numpy(), "mels": torch.zeros(2, 2).numpy(), "where": "x"}] * 4
ROWS = {"rows": torch.tensor([[0, 1], [2, 3]])}
WORDS = [{"words": ["u", "v"], "tags": ["a", "b"], "first": 0, "at": [0, 1]}]
BOXES = torch.tensor([[[0.1, 0.1, 0.5, 0.5], [0.5, 0.5, 0.9, 0.9]]])
ASKED = [{"text": "q c", "context": "on off", "spans": [(0, 2), (3, 6)], "at": 0, "answers": ("on",), "question": "q"}]
WINDOW = {"scale": 1.0, "mean": 0.0, "column": "c", "where": "w"}

# Each metric, perfect outputs, and the batch that they are of.
CASES: dict[str, tuple[Callable[[], Metric], Any, Batch]] = {
    "classes": (lambda: ClassMetric(NAMES), SCORES, Batch({}, LABELS, texts=tuple({"text": "t"} for _ in range(4)))),
    "recognized": (lambda: ImageClassMetric(NAMES), SCORES, Batch({}, LABELS, texts=tuple(FIGURES))),
    "sounds": (lambda: SoundClassMetric(NAMES), SCORES, Batch({}, LABELS, texts=tuple(FIGURES))),
    "numbers": (
        lambda: NumberMetric(lambda x: x),
        torch.tensor([[1.0], [2.0], [4.0]]),
        Batch({}, torch.tensor([1.0, 2, 4]), texts=tuple({"text": "t"} for _ in range(3))),
    ),
    "chosen": (
        ChoiceMetric,
        torch.tensor([[1.0], [0.0], [0.0], [1.0]]),
        Batch({}, torch.tensor([0, 1]), targets=ROWS, texts=({"text": "p", "choices": "xy"},) * 2),
    ),
    "cosines": (SimilarityMetric, torch.eye(4), Batch({}, None, targets=ROWS, texts=({"text": "p"},) * 2)),
    "forecast": (
        ForecastMetric,
        torch.ones(2, 3),
        Batch({"ids": torch.ones(2, 1, 1, 5)}, torch.ones(2, 3), texts=(WINDOW,) * 2),
    ),
    "located": (
        lambda: BoxMetric(("a", "b"), *PLAIN),
        Objects(torch.eye(3)[None, :2] * 9, centered(BOXES)),
        Batch(
            {"ids": torch.rand(1, 3, 4, 4)},
            targets={"classes": torch.tensor([[0, 1]]), "boxes": centered(BOXES)},
            texts=({"where": "x", "size": (50, 50)},),
        ),
    ),
    "tags": (lambda: TagMetric(("a", "b"), "plain"), torch.eye(2)[None], Batch({}, LABELS[:1], texts=tuple(WORDS))),
    "answers": (lambda: AnswerMetric(2, True), torch.eye(2)[None] * 3, Batch({}, None, texts=tuple(ASKED))),
    "segmented": (
        lambda: SegmentationMetric(("a", "b"), *PLAIN),
        torch.eye(2)[None, :, :, None].expand(1, 2, 2, 2).clone(),
        Batch(
            {"ids": torch.rand(1, 3, 2, 2)},
            torch.tensor([[[0, 0], [1, 1]]]),
            texts=({"where": "x", "place": (0, 0, (2, 2))},),
        ),
    ),
}


class Saying(nn.Module):
    """A model that says what it is told to."""

    def __init__(self, outputs: Any) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, **inputs: Tensor) -> Any:
        return self.outputs


def spoiled(outputs: Any, place: int, part: int) -> Any:
    """With NaN at one place of one of its tensors."""
    if isinstance(outputs, Tensor):
        made = outputs.clone()
        made.view(-1)[place % made.numel()] = math.nan
        return made
    parts = list(outputs)
    parts[part % len(parts)] = spoiled(parts[part % len(parts)], place, 0)
    return type(outputs)(*parts)


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_has_finite_scores(name: str) -> None:
    make, outputs, batch = CASES[name]
    metric = make()
    metric.evaluate(Saying(outputs), batch)
    found = metric.results()
    assert found and all(math.isfinite(one.value) for one in found.values())


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=15, deadline=None)
@given(place=st.integers(0, 100), part=st.integers(0, 1), bad_first=st.booleans())
def test_a_single_nan_leaves_no_score(name: str, place: int, part: int, bad_first: bool) -> None:
    make, outputs, batch = CASES[name]
    metric = make()
    for bad in (bad_first, not bad_first):
        metric.evaluate(Saying(spoiled(outputs, place, part) if bad else outputs), batch)
    found = metric.results()
    assert found and all(math.isnan(one.value) and "NaN, in 1 batch" in one.details for one in found.values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("error")
def test_nothing_measured_is_no_score(name: str) -> None:
    assert not any(math.isfinite(one.value) for one in CASES[name][0]().compute().values())


class Language(nn.Module):
    """Knows every token, unless a hidden value is NaN."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self._hidden = hidden

    def hidden(self, **inputs: Tensor) -> Tensor:
        return self._hidden

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


@pytest.mark.parametrize("bad", [False, True])
def test_tokens_of_nan_are_not_right(bad: bool) -> None:
    labels = torch.tensor([[0, 2, 1]])
    hidden = torch.nn.functional.one_hot(labels, 3).float()
    if bad:
        hidden[0, 0] = math.nan  # the greatest of which is said to be the first, which is right
    metric = TokenMetric()
    metric.evaluate(Language(hidden), Batch({}, labels))
    accuracy = metric.results()["accuracy"].value
    assert math.isnan(accuracy) if bad else accuracy == 1


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=8), st.integers(0, 7), st.sampled_from([math.nan, math.inf]))
def test_correlations_with_what_is_no_number_are_none(values: list[float], place: int, bad: float) -> None:
    said = list(values)
    said[place % len(said)] = bad
    for found in (correlations(values, said), correlations(said, values), correlations([], [])):
        assert all(math.isnan(one.value) for one in found.values())


@given(st.floats(-9, 9), st.floats(-9, 9), st.integers(1, 50))
def test_what_is_the_same_everywhere_correlates_with_nothing(a: float, b: float, n: int) -> None:
    """Also if its mean is another by a rounding: of three times 0.1 it is."""
    found = correlations([a] * n, [b] * n)
    assert found["pearson"].value == found["spearman"].value == 0
