"""Pruned runs are ordinary runs: they load, generate, evaluate and train on; what was removed is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.lab.prune import prune
from qkv.lab.prune.examples import loss_over
from qkv.nn.activations import Zero, intervene
from qkv.nn.pruning.low_rank import factorize
from qkv.nn.pruning.units import attention_layers
from qkv.runs.inference.held_out import batches, recipe_of
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def options(**more: object) -> dict[str, object]:
    return {"examples": 16, "device": "cpu", "curve": False, **more}


def test_a_share_of_the_heads_is_removed(trained: Path, tmp_path: Path):
    result = prune(trained, tmp_path / "small", heads=0.5, **options(curve=True))
    assert sum(map(len, result.heads.values())) == 3  # of 3 layers with 2 heads
    small, whole = qkv.load(result.folder, "cpu"), qkv.load(trained, "cpu")
    assert result.parameters == (whole.model.spec.n_parameters, small.model.spec.n_parameters)
    assert small.model.spec.n_parameters < whole.model.spec.n_parameters
    sites = {name: layer.site for name, layer in attention_layers(whole.model).items()}
    ids = torch.tensor([[5, 6, 7]])
    with (
        torch.no_grad(),
        intervene(whole.model, {sites[name]: Zero(heads=some) for name, some in result.heads.items()}),
    ):
        expected = whole.model(ids, ids)
    with torch.no_grad():
        torch.testing.assert_close(small.model(ids, ids), expected, rtol=1e-5, atol=1e-6)
    stored = json.loads((result.folder / "pruning.json").read_text())
    assert stored["heads"] == result.heads and set(stored["metrics"]) == {"before", "pruned"}
    shares = [share for share, _ in result.curve]
    assert shares[0] == 0.0 and shares == sorted(set(shares))  # each once, however few heads there are
    assert result.curve[0][1].keys() == result.metrics["before"].keys()
    assert result.speeds.keys() == {"before", "after"} and min(result.speeds.values()) > 0
    page = (result.folder / "pruning.html").read_text()
    assert "encoder.0" in page and "How many heads are needed" in page
    assert isinstance(small.generate("b a c"), str)  # a run like any other


def test_fine_tuning_continues_from_the_smaller_model(trained: Path, tmp_path: Path):
    result = prune(trained, tmp_path / "small", keep={"encoder.0": [1]}, neurons=0.25, finetune=2, **options())
    assert result.heads == {"encoder.0": [0]} and result.by == "given"
    assert set(result.neurons.values()) == {8}
    assert set(result.metrics) == {"before", "pruned", "finetuned"}
    tuned = qkv.load(result.folder, "cpu")
    first = qkv.load(result.folder.with_name("small-not-finetuned"), "cpu")
    assert tuned.model.spec == first.model.spec
    assert tuned.model.spec.encoder.blocks[0].attention.n_heads == 1
    assert tuned.model.spec.encoder.blocks[0].feedforward.d_ff == 24
    weights = zip(tuned.model.parameters(), first.model.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in weights)
    again = train(Recipe.load(result.folder / "recipe.yaml", ["training.max_steps=3"]), result.folder, resume=True)
    assert again.outcome.state.step == 3


@pytest.mark.slow
def test_pruning_to_a_rank_and_fine_tuning_keeps_both_models(trained: Path, tmp_path: Path):
    result = prune(trained, tmp_path / "small", rank=0.5, finetune=2, **options())
    tuned, first = (qkv.load(result.folder.with_name(name), "cpu") for name in ("small", "small-not-finetuned"))
    assert tuned.model.spec == first.model.spec
    assert tuned.model.spec.decoder.blocks[0].cross.low_rank.k == result.ranks["decoder.blocks.0.cross.k"] == 4
    before, after = result.parameters
    assert after == sum(p.numel() for p in tuned.model.parameters()) < before
    weights = zip(tuned.model.parameters(), first.model.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in weights)
    again = train(Recipe.load(result.folder / "recipe.yaml", ["training.max_steps=3"]), result.folder, resume=True)
    assert again.outcome.state.step == 3
    prune(trained, result.folder, rank=0.5, finetune=2, overwrite=True, **options())
    assert isinstance(tuned.generate("b a c"), str)
    page = (result.folder / "pruning.html").read_text()
    assert "decoder.0.cross" in page and "k of rank 4" in page and "matrices of low rank" in page


def test_factorized_outputs_are_nearer_with_the_inputs_than_without(trained: Path, tmp_path: Path):
    result = prune(trained, tmp_path / "small", rank=4, **options())
    whole, small = (qkv.load(path, "cpu").model for path in (trained, result.folder))
    assert small.spec.decoder.blocks[0].cross.low_rank.k == result.ranks["decoder.blocks.0.cross.k"] == 4
    assert result.parameters[1] == sum(p.numel() for p in small.parameters()) < result.parameters[0]
    blind = factorize(whole, result.ranks)
    ids = torch.tensor([[5, 6, 7, 5, 6, 8]])
    with torch.no_grad():
        expected = whole(ids, ids).log_softmax(-1)
        errors = [(model(ids, ids).log_softmax(-1) - expected).square().mean() for model in (small, blind)]
    assert errors[0] < errors[1]


def test_heads_are_removed_until_the_loss_grows(trained: Path, tmp_path: Path):
    result = prune(trained, tmp_path / "small", until=0.02, by="ablation", **options(curve=True))
    removed = sum(map(len, result.heads.values()))
    counts, losses = zip(*result.losses, strict=True)
    assert counts == tuple(range(len(counts))) and removed in (len(counts) - 2, len(counts) - 1)
    assert all(loss <= 1.02 * losses[0] for loss in losses[: removed + 1])
    assert all(loss > 1.02 * losses[0] for loss in losses[removed + 1 :])
    whole, small = (qkv.load(path, "cpu") for path in (trained, result.folder))
    held = batches(whole, "validation", 16)
    assert loss_over(recipe_of(small), small.model, held) == pytest.approx(losses[removed], rel=1e-4)
    assert {stack: len(found.heads) for stack, found in result.redundancy.items()} == {"encoder": 2, "decoder": 4}
    stored = json.loads((result.folder / "pruning.json").read_text())
    assert stored["until"] == 0.02 and stored["elbows"] == result.elbows
    page = (result.folder / "pruning.html").read_text()
    assert "2.0% more" in page and "Redundancy between heads" in page and "of the decoder" in page


@pytest.mark.parametrize("by", ["ablation", "gates"])
def test_other_measures_of_importance(by: str, trained_lm: Path, tmp_path: Path):
    result = prune(trained_lm, tmp_path / "small", heads=0.5, by=by, **options(examples=4))
    assert result.heads.keys() == {"decoder.0"} and len(result.heads["decoder.0"]) == 1
    least = min(range(2), key=lambda h: result.importance["decoder.0"][h])
    assert result.heads["decoder.0"] == [least]


@pytest.mark.parametrize("name", ["run", "out-not-finetuned"])
def test_the_run_itself_is_never_overwritten(trained: Path, tmp_path: Path, name: str):
    run = shutil.copytree(trained, tmp_path / name)
    before = (run / "model.safetensors").read_bytes()
    out = run if name == "run" else tmp_path / "out"
    with pytest.raises(ValueError, match="is the run that is pruned; choose another directory, such as"):
        prune(run, out, heads=0.5, overwrite=True, finetune=None if name == "run" else 5, **options(examples=4))
    assert (run / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"finetune": "soon"}, "soon"),
        ({"finetune": 5, "changes": ["a=b"]}, "there is no 'a'"),
        ({"changes": ["training.seed=1"]}, "settings of the recipe are for the fine-tuning"),
    ],
    ids=str,
)
def test_mistakes_in_the_fine_tuning_are_found_first(trained: Path, tmp_path: Path, given: Any, message: str):
    with pytest.raises(ValueError, match=message):
        prune(trained, tmp_path / "small", heads=0.5, **given, **options(examples=4))
    assert not list(tmp_path.iterdir())
