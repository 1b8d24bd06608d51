"""A task from outside, with its data, head, objective, metric, prediction and picture: it trains, evaluates, reports and
predicts, and nothing in the package names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from markupsafe import Markup
from torch import Tensor, nn
from torch.nn import functional as F

import qkv
from qkv.core.batch import Batch, Term, Terms
from qkv.core.metrics.base import Metric, MetricValue, model_outputs
from qkv.core.metrics.display import qualities, register
from qkv.data.source import Example, Source, Split
from qkv.data.task import Item, RandomContext, Task
from qkv.data.tokenizers.protocol import Encoder
from qkv.look.pictures import draws
from qkv.look.svg import tag
from qkv.nn.models.heads.vision import ImageClassifier
from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.uses import commands
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.report.report import write_report
from qkv.runs.tasks.prediction import Prediction, TrainedModel
from qkv.runs.tasks.prediction_batches import prediction_batches
from qkv.runs.train.train import train
from qkv.training.objective import Objective


class Ripples(Source, kind="ripples"):
    """Sines of one to four periods."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> list[Example]:
        random, time = np.random.default_rng([len(split), seed, epoch]), np.linspace(0, 2 * np.pi, 64)
        return [{"wave": np.sin(n * time), "periods": int(n)} for n in random.integers(1, 5, 128)]


class Counter(ImageClassifier, kind="counter"):
    """A separate head."""


class CountLoss(Objective, kind="count-loss"):
    """Cross-entropy of the count."""

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        assert batch.labels is not None
        loss = F.cross_entropy(model(**batch.inputs).float(), batch.labels, reduction="sum")
        return {"loss": Term(loss, len(batch.labels))}


register("miscounts", "Share of miscounts", scale="fraction", higher_is_better=False)
register("hits", "Share of hits", scale="fraction", higher_is_better=True)


class Hits(Metric):
    """How many counts are right."""

    def __init__(self) -> None:
        self.right: list[bool] = []
        self.shown: list[dict[str, Any]] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        counts, truth = outputs.argmax(-1), batch.labels.cpu()
        self.right += (counts == truth).tolist()
        for count, true in zip(counts.tolist(), truth.tolist(), strict=True):
            self.shown.append({"source": "a wave", "output": str(count), "picture": {"kind": "bars", "count": true}})

    def compute(self) -> dict[str, MetricValue]:
        share = sum(self.right) / len(self.right)
        return {"hits": MetricValue(share), "miscounts": MetricValue(1 - share)}

    def samples(self, count: int) -> list[dict[str, Any]]:
        return self.shown[:count]


class WaveCount(Task, kind="wave-count"):
    """The number of periods of a wave."""

    needs_tokenizer: ClassVar[bool] = False
    n_labels = property(lambda self: 5)

    def inputs(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item:
        return Item({"ids": np.float32(example["wave"])[None, None]}, tokens=9)

    def labels(self, example: Example, inputs: Item) -> Any:
        return np.int64(example["periods"])

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return Hits()


@WaveCount.predicts
def predict(task: WaveCount, trained: TrainedModel, paths: Sequence[str], **_: Any) -> Iterator[Prediction]:
    """The number of periods of the wave in each file of numbers."""
    examples: list[Example] = [{"wave": np.load(path), "where": path} for path in paths]
    for numbers, batch in prediction_batches(trained, task, examples):
        counts = model_outputs(trained.model, batch).argmax(-1).tolist()
        for number, count in zip(numbers, counts, strict=True):
            yield Prediction(paths[number], count, f"{paths[number]}: {count}", {"periods": count})


@draws("bars")
def ticks(picture: Mapping[str, Any]) -> Markup:
    return tag("p", "|" * picture["count"], class_="bars")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = {"preset": "vit-base-16", "image": [1, 64], "patch": [1, 8], "channels": 1, "d_model": 32, "n_layers": 1}
    tree = {
        "name": "ripples",
        "data": "ripples",
        "task": "wave-count",
        "head": "counter",
        "objective": "count-loss",
        "model": {**model, "n_heads": 2, "d_ff": 64},
        "batching": {"tokens": 32 * 9},
        "training": {
            "max_steps": 60,
            "eval_every": 30,
            "optimizer": {"kind": "adamw", "lr": 0.01},
            "schedule": {"kind": "constant", "warmup": 5},
            "metric": "hits",
            "mode": "max",
        },
    }
    out = tmp_path_factory.mktemp("outside") / "run"
    train(Recipe.from_tree(tree), out, device="cpu")
    return out


def test_it_trains_and_evaluates(trained: Path) -> None:
    run = qkv.load(trained, device="cpu")
    assert isinstance(run.model.spec.head, Counter) and run.model.spec.head.labels == 5
    assert evaluate_run(run, "test").metrics["hits"] > 0.8


def test_it_reports_by_its_own_title_and_picture(trained: Path) -> None:
    page = write_report(trained).read_text(encoding="utf-8")
    assert "Share of hits" in page and "hits" in qualities()
    assert 'class="bars"' in page


def test_it_predicts_without_labels(trained: Path, tmp_path: Path) -> None:
    run, paths = qkv.load(trained, device="cpu"), []
    for count in (1, 2, 3, 4):
        paths.append(str(tmp_path / f"{count}.npy"))
        np.save(paths[-1], np.sin(count * np.linspace(0, 2 * np.pi, 64)))
    assert [one.value for one in run.predict(paths)] == [1, 2, 3, 4]
    assert commands(run)[0] == "predict"


def test_a_recipe_knows_which_way_its_metric_is_better() -> None:
    tree = {"name": "ripples", "data": "ripples", "task": "wave-count", "objective": "count-loss", "head": "counter"}
    tree |= {"model": {"preset": "vit-base-16", "image": [1, 64], "patch": [1, 8], "channels": 1}}
    tree |= {"training": {"max_steps": 1, "metric": "miscounts", "mode": "max"}}
    with pytest.raises(ValueError, match="but lower miscounts is better"):
        Recipe.from_tree(tree).resolve_data(None)
