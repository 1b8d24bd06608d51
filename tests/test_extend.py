"""Every seam from outside the package: a new part is one short class, and models train with it like with any other."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

import qkv
from qkv.attention.multi_head import Mixer, Pass
from qkv.core.batch import Batch, Term, Terms
from qkv.core.layout import Layout, View
from qkv.core.spec import Cost
from qkv.data.source import Example, Source, Split, Table
from qkv.data.task import Item, RandomContext, Task
from qkv.experiments.preview import preview
from qkv.experiments.train import train as run_recipe
from qkv.layers.linear import Linear
from qkv.metrics.base import Metric, MetricValue
from qkv.patterns.basic import BlockMask, Interval, Pattern
from qkv.positions.base import Bias, Position, PositionModule, Widths
from qkv.recipes.recipe import Recipe
from qkv.tokenizers.protocol import Encoder
from qkv.training.loop import fit
from qkv.training.objective import NextToken, Objective
from qkv.training.settings import Training

VOCAB = 17


# -- what someone else writes ------------------------------------------------------------------------------------------


class Dilated(Pattern, kind="dilated-test"):
    """Every `step`-th token back (Longformer's dilation)."""

    step: int = Field(gt=0)

    def allowed(self, q: View, k: View, head: Tensor | None = None) -> Tensor:
        return (k.position <= q.position) & ((q.position - k.position) % self.step == 0)

    def block(self, q: Interval, k: Interval) -> BlockMask:
        return k.low <= q.high, q.low != q.low


class Kerple(Position, kind="kerple-test"):
    """A trained logarithmic bias, −r₁ log(1 + r₂ |q − k|) for each head (Chi et al. 2022)."""

    def module(self, widths: Widths) -> PositionModule:
        made = PositionModule()
        made.rates = nn.Parameter(torch.empty(2, widths.n_heads))
        made.initial = lambda name: 0.5
        made.bias = lambda device=None: Bias(self, (made.rates,))
        return made

    def n_parameters(self, widths: Widths) -> int:
        return 2 * widths.n_heads

    def bias(self, tensors: tuple[Tensor, ...], q: View, k: View) -> Tensor:
        distance = (q.position - k.position).abs().unsqueeze(-3)
        first, second = tensors[0].abs()[:, :, None, None]
        return -first * torch.log1p(second * distance)


class Wave(Position, kind="wave-test"):
    """One sine and one cosine of each position, added to the input."""

    def module(self, widths: Widths) -> PositionModule:
        made = PositionModule()
        rate = torch.arange(1, widths.d_model + 1) / widths.d_model
        made.embed = lambda layout: torch.sin(layout.positions * rate)
        return made


class Maxout(qkv.FeedForwardLayer, kind="maxout-test"):
    """max(x W₁, x W₂) (Goodfellow et al. 2013)."""

    def module(self, d_model: int) -> nn.Module:
        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.a, self.b = Linear(d_model, d_model), Linear(d_model, d_model)

            def forward(self, x: Tensor) -> Tensor:
                return torch.maximum(self.a(x), self.b(x))

        return Net()

    def cost(self, d_model: int, tokens: int = 0) -> Cost:
        return Cost(2 * (d_model * d_model + d_model), 4 * d_model * d_model * tokens)


class Unit(qkv.Norm, kind="unit-test"):
    """x / |x| · √d."""

    def module(self, d: int) -> nn.Module:
        class Net(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return F.normalize(x, dim=-1) * d**0.5

        return Net()


class Averaging(Mixer, kind="averaging-test"):
    """The mean of all tokens so far in attention's place."""

    def module(self, d_model: int, cross: bool = False, name: str = "") -> nn.Module:
        class Net(nn.Module):
            def forward(self, x: Tensor, run: Pass, state: object = None) -> Tensor:
                return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]

        return Net()


class Focal(Objective, kind="focal-test"):
    """(1 − p)^γ · −log p: labels that are known already weigh less (Lin et al. 2017)."""

    gamma: float = 2.0

    def __call__(self, model: nn.Module, batch: Batch) -> Terms:
        nll = F.cross_entropy(model(**batch.inputs).flatten(0, 1), batch.labels.flatten(), reduction="none")
        return {"focal": Term(((1 - (-nll).exp()) ** self.gamma * nll).sum(), batch.counts["focal"], value=nll.sum())}


class Tones(Source, kind="tones-test"):
    """Made sound: 64 samples of a sine of so many periods, in noise."""

    def table(self, split: Split, *, seed: int = 0, epoch: int = 0) -> Table:
        random, time = np.random.default_rng([len(split), seed, epoch]), np.linspace(0, 2 * np.pi, 64)
        periods = random.integers(1, 5, 256)
        return [{"periods": int(n), "wave": np.sin(n * time) + random.normal(0, 0.2, 64)} for n in periods]


class HowManyPeriods(Task, kind="periods-test"):
    """Waves as images one pixel high, cut into patches of samples; the class is the number of periods."""

    needs_tokenizer: ClassVar[bool] = False
    n_labels = property(lambda self: 5)

    def item(self, example: Example, tokenizer: Encoder | None, randomness: RandomContext) -> Item:
        wave = np.float32(example["wave"])[None, None]
        return Item({"ids": wave}, np.int64(example["periods"]), tokens=9, example=example)

    def metric(self, tokenizer: Encoder | None) -> Metric:
        return Right()


class Right(Metric):
    """The share of classes that are right."""

    def __init__(self) -> None:
        self.right: list[bool] = []

    def update(self, outputs: Tensor, batch: Batch) -> None:
        self.right += (outputs.argmax(-1) == batch.labels).tolist()

    def compute(self) -> dict[str, MetricValue]:
        return {"accuracy": MetricValue(sum(self.right) / len(self.right))}


# -- and what everyone then does ---------------------------------------------------------------------------------------


def spec(**changes: Any) -> qkv.Transformer:
    base = qkv.preset("llama", vocab_size=VOCAB, d_model=16, n_layers=2, n_heads=2, d_ff=24, max_positions=32)
    return base.replace({f"decoder.{path.replace('__', '.')}": value for path, value in changes.items()})


def stream(position: dict[str, Any] | None = None) -> Iterator[Batch]:
    """Counting in steps of three, from anywhere."""
    for i in itertools.count(position["next"] if position else 0):
        start = torch.randint(VOCAB, (8, 1), generator=torch.Generator().manual_seed(i))
        ids = (start + 3 * torch.arange(11)) % VOCAB
        inputs = {"ids": ids[:, :-1], "layout": Layout.full(10)}
        yield Batch(inputs, ids[:, 1:].contiguous(), {"loss": 80}, 80, 80, {"next": i + 1})


@torch.no_grad()
def accuracy(model: nn.Module, step: int = 0) -> dict[str, float]:
    batch = next(stream({"next": 10_000}))
    return {"accuracy": (model(**batch.inputs).argmax(-1) == batch.labels).float().mean().item()}


def train(made: qkv.Transformer, objective: Objective, out: Path) -> nn.Module:
    model = qkv.build(made)
    before = accuracy(model)["accuracy"]
    evaluation = {"eval_every": 25, "metric": "accuracy", "mode": "max"}
    how = {"max_steps": 50, "optimizer": {"kind": "adamw", "lr": 0.02}, "schedule": "constant"}
    settings = Training.from_dict({**how, **evaluation})
    outcome = fit(model, stream, objective, settings, out=out, evaluate=accuracy)
    after = accuracy(model.eval())["accuracy"]
    assert outcome.ending == "max_steps" and before < 0.4 and after > 0.9
    return model


MODELS = {
    "pattern": spec(blocks__0__attention__pattern=Dilated(step=2) & qkv.causal() | qkv.sinks(1) & qkv.causal()),
    "position, a trained bias": spec(position=Kerple()),
    "position, an embedding": spec(position=Wave()),
    "feed-forward": spec(**{"blocks__*__feedforward": Maxout()}),
    "norm": spec(**{"blocks__*__norm": Unit(), "norm": Unit()}),
    "mixer": spec(blocks__1__attention=Averaging()),
}


@pytest.mark.parametrize("part", MODELS)
def test_a_model_trains_with_a_part_from_outside(part: str, tmp_path: Path) -> None:
    made = MODELS[part]
    assert qkv.Transformer.from_json(made.to_json()) == made
    model = train(made, NextToken(), tmp_path / "run")
    assert made.n_parameters == sum(p.numel() for p in model.parameters())
    assert made.cost(tokens=8).flops > 0


def test_an_objective_from_outside(tmp_path: Path) -> None:
    assert Objective.from_dict({"kind": "focal-test", "gamma": 1}) == Focal(gamma=1)
    train(spec(), Focal(gamma=1), tmp_path / "run")


def test_an_objective_from_outside_trains_by_a_recipe(tmp_path: Path) -> None:
    tree = {
        "name": "focal",
        "data": {"kind": "copy", "longest": 5, "train": 200, "validation": 20, "test": 20},
        "tokenizer": {"kind": "word"},
        "objective": {"kind": "focal-test", "gamma": 1},
        "model": {"preset": "transformer", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16},
        "evaluation": {"examples": 10},
        "training": {"max_steps": 6, "eval_every": 3, "metric": "focal", "mode": "min"},
    }
    done = run_recipe(Recipe.from_tree(tree), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and 0 < done.evaluation.metrics["focal"] == done.evaluation.metrics["loss"]


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
def test_every_backend_serves_and_trains_parts_from_outside(backend: str) -> None:
    made = spec(position=Kerple(), **{"blocks__*__attention__pattern": Dilated(step=2)})
    ids, results = torch.randint(VOCAB, (2, 9)), []
    for name in (backend, "reference"):
        model = qkv.build(made.replace({"decoder.blocks.*.attention.backend": name}), dtype=torch.float64)
        sums = model(ids, labels=ids.roll(-1, 1))
        sums.loss.backward()
        results.append({n: p.grad for n, p in model.named_parameters()})
    assert results[0]["decoder.position.rates"].abs().min() > 0
    torch.testing.assert_close(*results)


def test_parts_from_outside_decode_step_by_step() -> None:
    made = spec(position=Kerple(), **{"blocks__*__attention__pattern": Dilated(step=2)})
    model, ids = qkv.build(made).eval(), torch.randint(VOCAB, (2, 7))
    cache = model.start(2)
    with torch.no_grad():
        steps = torch.stack([model.step(ids[:, t : t + 1], cache) for t in range(7)], 1)
        torch.testing.assert_close(steps, model(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cls", [Dilated, Kerple, Wave, Maxout, Unit, Averaging, Focal])
def test_each_is_under_twenty_lines(cls: type) -> None:
    assert len(inspect.getsource(cls).splitlines()) < 20


def test_a_modality_from_outside_trains_by_a_recipe(tmp_path: Path) -> None:
    """A kind of data, what becomes of it and how it is judged; the model, the loop and the command line are as ever."""
    model = {"preset": "vit-base-16", "image": [1, 64], "patch": [1, 8], "channels": 1, "d_model": 32, "n_layers": 1}
    tree = {
        "name": "tones",
        "data": "tones-test",
        "task": "periods-test",
        "objective": "labels",
        "model": {**model, "n_heads": 2, "d_ff": 64},
        "batching": {"tokens": 32 * 9},
        "training": {
            "max_steps": 60,
            "eval_every": 30,
            "optimizer": {"kind": "adamw", "lr": 0.01},
            "schedule": {"kind": "constant", "warmup": 5},
            "metric": "accuracy",
            "mode": "max",
        },
    }
    recipe = Recipe.from_tree(tree)
    done = run_recipe(recipe, tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.evaluation.metrics["accuracy"] > 0.8
    assert qkv.load(tmp_path / "run", device="cpu").model.spec.head.labels == 5
    assert dict(preview(recipe).rows[0].lines())["ids"].startswith("1 × 1 × 64 numbers")
