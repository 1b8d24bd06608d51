"""The parts that docs/extending.md adds from outside: the page's code runs, and models train with it like with any other."""

from __future__ import annotations

import ast
import itertools
import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.io.families import FAMILIES
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.train import train as run_recipe
from qkv.testing import check
from qkv.training.loop import fit
from qkv.training.objective import NextToken, Objective
from qkv.training.optimizers.schedules import Schedule
from qkv.training.settings import Training

VOCAB = 17
LONGEST = 30  # lines of a block on the page
PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _parts() -> Any:
    """The page's code as a module, defined once."""
    module = types.ModuleType("extending")
    sys.modules["extending"] = module
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    return module


PARTS = _parts()
ACME = FAMILIES.pop("acme")  # other tests go through all families


def test_the_parts_are_as_short_as_the_page_says() -> None:
    assert all(len(block.splitlines()) <= LONGEST for block in BLOCKS), [len(block.splitlines()) for block in BLOCKS]
    classes = [node for block in BLOCKS for node in ast.parse(block).body if isinstance(node, ast.ClassDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in classes}
    assert all(length < 20 for length in lengths.values()), lengths
    kinds = [node for node in classes if any(keyword.arg == "kind" for keyword in node.keywords)]
    assert len(kinds) >= 13 and all(ast.get_docstring(node) for node in kinds)


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


def train(made: Any, objective: Objective, out: Path, **changes: Any) -> nn.Module:
    model = qkv.build(made)
    before = accuracy(model)["accuracy"]
    evaluation = {"eval_every": 25, "metric": "accuracy", "mode": "max"}
    how = {"max_steps": 50, "optimizer": {"kind": "adamw", "lr": 0.02}, "schedule": "constant"}
    settings = Training.from_dict({**how, **evaluation, **changes})
    outcome = fit(model, stream, objective, settings, out=out, evaluate=accuracy)
    after = accuracy(model.eval())["accuracy"]
    assert outcome.ending == "max_steps" and before < 0.4 and after > 0.9
    return model


MODELS = {
    "pattern": spec(blocks__0__attention__pattern=PARTS.EveryNth(step=2) & qkv.causal() | qkv.sinks(1) & qkv.causal()),
    "position, a trained bias": spec(position=PARTS.Kerple()),
    "position, an embedding": spec(position=PARTS.Wave()),
    "feed-forward": spec(**{"blocks__*__feedforward": PARTS.Maxout()}),
    "norm": spec(**{"blocks__*__norm": PARTS.Unit(), "norm": PARTS.Unit()}),
    "mixer": spec(blocks__1__attention=PARTS.Averaging()),
    "placement": spec(blocks__1__placement=PARTS.HalfPre()),
    "weighting": spec(blocks__1__attention__weighting=PARTS.Power()),
    "head": spec().replace({"head": PARTS.CosineHead()}),
}


@pytest.mark.parametrize("part", MODELS)
def test_a_model_trains_with_a_part_from_outside(part: str, tmp_path: Path) -> None:
    made = MODELS[part]
    assert qkv.Transformer.from_json(made.to_json()) == made
    model = train(made, NextToken(), tmp_path / "run")
    assert made.n_parameters == sum(p.numel() for p in model.parameters())
    assert made.cost(tokens=8).flops > 0


EXAMPLES = {
    "pattern": PARTS.EveryNth(step=3),
    "position, a trained bias": PARTS.Kerple(),
    "position, an embedding": PARTS.Wave(),
    "mixer": PARTS.Averaging(),
    "feed-forward": PARTS.Maxout(),
    "norm": PARTS.Unit(),
    "placement": PARTS.HalfPre(),
    "weighting": PARTS.Power(),
    "head": PARTS.CosineHead(),
    "objective": PARTS.Focal(),
    "optimizer": PARTS.SignSGD(),
    "schedule": PARTS.Triangle(),
    "source": PARTS.Tones(),
    "tokenizer": PARTS.Vowels(),
    "model": PARTS.Bag(vocab_size=VOCAB),
}


@pytest.mark.parametrize("part", EXAMPLES)
def test_a_part_of_the_page_passes_its_checks(part: str, compiled: bool) -> None:
    report = check(EXAMPLES[part])
    report.raise_for_failures()
    assert sum(check.outcome == "passed" for check in report.checks) > 1, report


def test_the_metric_of_the_page_passes_its_checks() -> None:
    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids * self.weight

    batches = [Batch({"ids": torch.rand(n, 5)}, torch.randint(5, (n,)), {"loss": n}) for n in (4, 3)]
    report = check(PARTS.CountedRight(), model=Outputs(), batches=batches)
    assert all(check.outcome == "passed" for check in report.checks), report


def test_the_task_of_the_page_passes_its_checks() -> None:
    report = check(PARTS.CountPeriods(), examples=PARTS.Tones().table("train")[:6])
    report.raise_for_failures()
    assert [check.name for check in report.checks if check.outcome == "not checked"] == ["fields"], report


def test_an_objective_from_outside(tmp_path: Path) -> None:
    assert Objective.from_dict({"kind": "focal", "gamma": 1}) == PARTS.Focal(gamma=1)
    train(spec(), PARTS.Focal(gamma=1), tmp_path / "run")


def test_an_objective_from_outside_trains_by_a_recipe(tmp_path: Path) -> None:
    tree = {
        "name": "focal",
        "data": {"kind": "copy", "longest": 5, "train": 200, "validation": 20, "test": 20},
        "tokenizer": {"kind": "word"},
        "objective": {"kind": "focal", "gamma": 1},
        "model": {"preset": "transformer", "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16},
        "evaluation": {"examples": 10},
        "training": {"max_steps": 6, "eval_every": 3, "metric": "focal", "mode": "min"},
    }
    done = run_recipe(Recipe.from_tree(tree), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and 0 < done.evaluation.metrics["focal"] == done.evaluation.metrics["loss"]


def test_an_objective_counts_what_its_equation_says() -> None:
    model, batch = qkv.build(spec()).eval(), next(stream())
    nll = -model(**batch.inputs).log_softmax(-1).gather(2, batch.labels[..., None])
    terms = PARTS.Focal(gamma=1)(model, Batch(**{**vars(batch), "counts": {"focal": 80}}))
    torch.testing.assert_close(terms["focal"].sum, ((1 - (-nll).exp()) * nll).sum())


def test_an_optimizer_from_outside(tmp_path: Path) -> None:
    train(spec(), NextToken(), tmp_path / "run", optimizer={"kind": "sign-sgd", "lr": 0.01, "weight_decay": 0.0})


def test_a_schedule_from_outside(tmp_path: Path) -> None:
    triangle = Schedule.from_dict({"kind": "triangle", "period": 10, "warmup": 5})
    assert [triangle.factor(step) for step in (1, 5, 10, 15)] == pytest.approx([0.2 * 0.82, 0.1, 1.0, 0.1])
    train(spec(), NextToken(), tmp_path / "run", schedule={"kind": "triangle", "period": 20, "warmup": 5})


def test_a_pattern_from_outside_has_masks_blocks_and_counts() -> None:
    pattern = PARTS.EveryNth(step=3)
    assert pattern.mask(4).tolist() == [[k <= q and (q - k) % 3 == 0 for k in range(4)] for q in range(4)]
    assert not pattern.looks_ahead()


def test_a_tokenizer_from_outside() -> None:
    assert train_tokenizer("vowels", []).encode("a cat") == [4, 1, 1, 4, 1]


def test_a_cache_from_outside_forgets_what_its_window_leaves_out() -> None:
    model, ids = qkv.build(spec()).eval(), torch.randint(VOCAB, (1, 12))
    near = qkv.causal() & qkv.window(4)
    window = qkv.build(spec(**{"blocks__*__attention__pattern": near}))
    window.load_state_dict(model.state_dict())
    cache = model.start(1, cache=PARTS.Newest(tokens=4))
    with torch.no_grad():
        steps = torch.stack([model.step(ids[:, t : t + 1], cache) for t in range(12)], 1)
        torch.testing.assert_close(steps, window.eval()(ids), atol=1e-5, rtol=1e-5)
    out = model.generate(ids, max_new_tokens=3, cache={"kind": "newest", "tokens": 64})
    assert out.equal(model.generate(ids, max_new_tokens=3))


def test_a_family_from_outside_is_loaded_and_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "acme", ACME)
    model = qkv.build(spec()).eval()
    model.save(tmp_path / "acme", to="hub")
    config = tmp_path / "acme" / "config.json"
    text = config.read_text().replace('"llama"', '"acme"').replace("LlamaForCausalLM", "AcmeForCausalLM")
    config.write_text(text)
    run, ids = qkv.load(tmp_path / "acme", device="cpu"), torch.randint(VOCAB, (1, 6))
    assert run.model(ids).equal(model(ids))
    run.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == ["AcmeForCausalLM"]


def test_a_model_from_outside_trains_is_saved_loads_and_generates(tmp_path: Path) -> None:
    tree = {
        "name": "bag",
        "data": {"kind": "copy", "longest": 5, "train": 200, "validation": 20, "test": 20},
        "tokenizer": {"kind": "word"},
        "objective": "next-token",
        "model": {"preset": "bag", "d_model": 16},
        "evaluation": {"examples": 10},
        "training": {"max_steps": 20, "eval_every": 10, "metric": "loss", "mode": "min"},
    }
    run_recipe(Recipe.from_tree(tree), tmp_path / "run", device="cpu")
    run = qkv.load(tmp_path / "run", device="cpu")
    assert run.model.spec.kind == "bag" and run.model.spec.n_parameters == sum(
        p.numel() for p in run.model.parameters()
    )
    out = run.generate(["a b c", "b"], max_new_tokens=4)
    assert len(out) == 2 and out[0] == run.generate(["a b c"], max_new_tokens=4)[0]


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled", "exact"])
def test_every_backend_serves_and_trains_parts_from_outside(backend: str) -> None:
    made = spec(position=PARTS.Kerple(), **{"blocks__*__attention__pattern": PARTS.EveryNth(step=2)})
    ids, results = torch.randint(VOCAB, (2, 9)), []
    for name in (backend, "reference"):
        model = qkv.build(made.replace({"decoder.blocks.*.attention.backend": name}), dtype=torch.float64)
        sums = model(ids, labels=ids.roll(-1, 1))
        sums.loss.backward()
        results.append({n: p.grad for n, p in model.named_parameters()})
    assert results[0]["decoder.position.rates"].abs().min() > 0
    torch.testing.assert_close(*results)


def test_parts_from_outside_decode_step_by_step() -> None:
    made = spec(position=PARTS.Kerple(), **{"blocks__*__attention__pattern": PARTS.EveryNth(step=2)})
    model, ids = qkv.build(made).eval(), torch.randint(VOCAB, (2, 7))
    cache = model.start(2)
    with torch.no_grad():
        steps = torch.stack([model.step(ids[:, t : t + 1], cache) for t in range(7)], 1)
        torch.testing.assert_close(steps, model(ids), atol=1e-5, rtol=1e-5)


def test_a_modality_from_outside_trains_by_a_recipe(tmp_path: Path) -> None:
    """A kind of data, what becomes of it and how it is judged; the model, the loop and the command line are as ever."""
    model = {"preset": "vit-base-16", "image": [1, 64], "patch": [1, 8], "channels": 1, "d_model": 32, "n_layers": 1}
    tree = {
        "name": "tones",
        "data": "tones",
        "task": "count-periods",
        "objective": "labels",
        "model": {**model, "n_heads": 2, "d_ff": 64},
        "batching": {"tokens": 32 * 9},
        "training": {
            "max_steps": 60,
            "eval_every": 30,
            "optimizer": {"kind": "adamw", "lr": 0.01},
            "schedule": {"kind": "constant", "warmup": 5},
            "metric": "counted_right",
            "mode": "max",
        },
    }
    recipe = Recipe.from_tree(tree)
    done = run_recipe(recipe, tmp_path / "run", device="cpu")
    assert done.evaluation is not None and done.evaluation.metrics["counted_right"] > 0.8
    run = qkv.load(tmp_path / "run", device="cpu")
    assert run.model.spec.head.labels == 5
    np.save(tmp_path / "wave.npy", np.sin(2 * np.linspace(0, 2 * np.pi, 64)))
    assert [one.value for one in run.predict([str(tmp_path / "wave.npy")])] == [2]
    assert dict(preview(recipe).rows[0].lines())["ids"].startswith("1 × 1 × 64 numbers")
