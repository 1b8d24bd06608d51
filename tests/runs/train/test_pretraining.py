"""Pre-training from a recipe to a run directory: two losses of one pass, two models in one, samples."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pretraining_runs import MORE, SMALL, small

from qkv.data.tokenizers.tokenizer import train as learn
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.train import train
from qkv.training.step import Stepper

METRICS = {
    "bert": {"loss", "next_sentence", "masked_accuracy", "sentence_accuracy", "unigram_entropy"},
    "electra": {"loss", "generator", "masked_accuracy", "unigram_entropy", "replaced", "precision", "recall"},
    "t5": {"loss", "accuracy", "unigram_entropy"},
    "bart": {"loss", "accuracy", "unigram_entropy"},
    "prefix": {"loss", "accuracy", "unigram_entropy"},
}


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


@pytest.mark.slow
def test_bert_steps_compiled_as_it_does_otherwise(tmp_path: Path) -> None:
    runs = [train(small("bert", f"training.compile={on}"), tmp_path / on, device="cpu") for on in ("true", "false")]
    losses = [run.evaluation.metrics["loss"] for run in runs if run.evaluation is not None]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


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
