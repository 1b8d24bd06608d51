"""Pre-training from a recipe to a run directory: two losses of one pass, two models in one, samples."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from qkv.core.batch import IGNORE
from qkv.data.loader.stream import stream
from qkv.data.tokenizers.tokenizer import train as learn
from qkv.io.directories.build import build
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.tokenizer import make
from qkv.runs.train.train import train
from qkv.training.objective import Objective
from qkv.training.step import Stepper

SMALL = [
    *("data.packages=[json]", "data.validation=0.3", "data.test=0.3", "tokenizer.vocab_size=400"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=32"),
    *("batching.context=48", "batching.tokens=384", "training.max_steps=3", "training.eval_every=3"),
    *("evaluation.examples=4", "evaluation.test_examples=4", "evaluation.samples=2"),
]
MORE = {
    "electra": ["model.embedding_size=12", "head.generator=0.5"],
    "t5": ["model.d_head=8", "task.sentinels=16"],
    "prefix": ["model.d_ff=24"],
}
METRICS = {
    "bert": {"loss", "next_sentence", "masked_accuracy", "sentence_accuracy", "unigram_entropy"},
    "electra": {"loss", "generator", "masked_accuracy", "unigram_entropy", "replaced", "precision", "recall"},
    "t5": {"loss", "accuracy", "unigram_entropy"},
    "bart": {"loss", "accuracy", "unigram_entropy"},
    "prefix": {"loss", "accuracy", "unigram_entropy"},
}


def small(name: str, *more: str) -> Recipe:
    return Recipe.load(name, [*SMALL, *MORE.get(name, []), *more])


@pytest.mark.parametrize("name", METRICS)
def test_a_run_has_its_metrics_and_its_samples(name: str, tmp_path: Path) -> None:
    done = train(small(name), tmp_path / "run", device="cpu")
    found = done.evaluation
    assert found is not None and set(found.metrics) == METRICS[name]
    assert all(math.isfinite(value) for value in found.metrics.values())
    assert 0 < found.metrics["unigram_entropy"] < math.log(400)
    assert len(found.samples) == 2 and all({"source", "output", "target"} <= set(s) for s in found.samples)
    run = load(tmp_path / "run", device="cpu")
    assert run.recipe is not None and run.tokenizer is not None
    if name != "t5":
        assert run.tokenizer.mask_id is not None or name == "prefix"
    assert all(row.lines() for row in preview(small(name), tmp_path / "run").rows)


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_a_run_continues_bit_for_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(name, "training.max_steps=4", "training.eval_every=4")
    whole = train(recipe, tmp_path / "whole", device="cpu")
    take, calls = Stepper.take, iter(range(99))

    def interrupting(self: Any, *args: Any) -> Any:
        if next(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return take(self, *args)

    monkeypatch.setattr(Stepper, "take", interrupting)
    assert train(recipe, tmp_path / "parted", device="cpu").outcome.interrupted
    monkeypatch.undo()
    rest = train(recipe, tmp_path / "parted", resume=True, device="cpu")
    assert rest.evaluation is not None and whole.evaluation is not None
    assert rest.evaluation.metrics == whole.evaluation.metrics
    files = [(tmp_path / part / "model.safetensors").read_bytes() for part in ("whole", "parted")]
    assert files[0] == files[1]


def batch_of(name: str) -> tuple[Any, Any]:
    recipe = small(name)
    tokenizer = make(recipe)
    recipe = recipe.resolve_data(tokenizer)
    model = build(recipe.model.spec(400))
    seq2seq = model.is_encoder_decoder
    with stream(recipe.data, tokenizer, recipe.batching, seq2seq=seq2seq, task=recipe.task) as batches:
        return model, next(batches)


def test_both_losses_of_bert_come_of_one_pass() -> None:
    model, batch = batch_of("bert")
    objective = Objective.from_dict({"kind": "masked-language-model"})
    passes = []
    model.encoder.register_forward_hook(lambda *_: passes.append(1))
    terms = objective(model.eval(), batch)
    assert len(passes) == 1
    labels = batch.labels
    logits = model(**batch.inputs)
    plain = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(terms["loss"].sum, plain, rtol=1e-4, atol=1e-4)
    assert terms["loss"].count == int((labels != IGNORE).sum())
    scores = model.classify(**batch.inputs)
    classes = batch.targets["next_sentence"]
    plain = torch.nn.functional.cross_entropy(scores, classes, reduction="sum")
    torch.testing.assert_close(terms["next_sentence"].sum, plain, rtol=1e-4, atol=1e-4)
    assert terms["next_sentence"].count == len(classes)


@pytest.mark.slow
def test_bert_steps_compiled_as_it_does_otherwise(tmp_path: Path) -> None:
    runs = [train(small("bert", f"training.compile={on}"), tmp_path / on, device="cpu") for on in ("true", "false")]
    losses = [run.evaluation.metrics["loss"] for run in runs if run.evaluation is not None]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_electras_generator_learns_nothing_of_the_discriminators_loss() -> None:
    model, batch = batch_of("electra")
    objective = Objective.from_dict({"kind": "replaced-tokens"})
    terms = objective(model.train(), batch)
    assert terms["loss"].weight == 50 and terms["loss"].count == batch.tokens
    assert terms["generator"].count == int((batch.labels != IGNORE).sum())
    terms["loss"].sum.backward()
    own = {n for n, p in model.named_parameters() if p.grad is None}
    tables = {"encoder.embedding.weight", "encoder.embedding.types", "encoder.position.weight"}
    assert own == {n for n, _ in model.named_parameters() if n.startswith("head.generator")} - tables


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("bert", ["model.labels=0"], "a pooler and a classifier"),
        ("electra", ["head=null"], "needs a model with a generator"),
        ("t5", ["task=null", "batching.max_length=64"], "encoder-decoder needs pairs"),
        ("bert", ["tokenizer={kind: file, path: TOKENIZER}"], "needs a tokenizer with a mask token"),
    ],
)
def test_what_does_not_fit_is_told(name: str, settings: list[str], said: str, tmp_path: Path) -> None:
    learn("byte", ["a"]).save(tmp_path / "tokenizer.json")
    settings = [text.replace("TOKENIZER", str(tmp_path / "tokenizer.json")) for text in settings]
    kept = [text for text in SMALL if not (text.startswith("tokenizer.") and settings[0].startswith("tokenizer="))]
    with pytest.raises(ValueError, match=said):
        more = [] if settings == ["head=null"] else MORE.get(name, [])
        more = [text for text in more if not (text.startswith("task.") and "task=null" in settings)]
        train(Recipe.load(name, [*kept, *more, *settings]), tmp_path / "run", device="cpu")
