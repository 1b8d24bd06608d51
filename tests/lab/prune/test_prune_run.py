"""Pruned runs are ordinary runs: they load, generate, evaluate and train on; what was removed is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import qkv
from qkv.cli import main
from qkv.lab.prune import prune
from qkv.nn.activations import Zero, intervene
from qkv.nn.pruning.low_rank import factorize
from qkv.nn.pruning.units import attention_layers
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def options(**more: object) -> dict[str, object]:
    return {"examples": 16, "device": "cpu", "curve": False, **more}


def test_a_share_of_the_heads(trained: Path, tmp_path: Path):
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
    blind = factorize(whole, result.ranks)
    ids = torch.tensor([[5, 6, 7, 5, 6, 8]])
    with torch.no_grad():
        expected = whole(ids, ids).log_softmax(-1)
        errors = [(model(ids, ids).log_softmax(-1) - expected).square().mean() for model in (small, blind)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("by", ["ablation", "gates"])
def test_other_measures_of_importance(by: str, trained_lm: Path, tmp_path: Path):
    result = prune(trained_lm, tmp_path / "small", heads=0.5, by=by, **options(examples=4))
    assert result.heads.keys() == {"decoder.0"} and len(result.heads["decoder.0"]) == 1
    least = min(range(2), key=lambda h: result.importance["decoder.0"][h])
    assert result.heads["decoder.0"] == [least]


def test_the_command_prunes_the_heads_that_it_names(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "small"
    command = ["prune", str(trained), "--heads", "encoder.0:1", "--out", str(folder), "--examples", "8"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "encoder.0: removed heads 1" in said and "parameters:" in said
    assert main(["translate", str(folder), "b a"]) == 0
    capsys.readouterr()
    assert main(command) == 2
    assert (
        f"{folder} already exists; choose another directory, or replace it with --overwrite" in capsys.readouterr().err
    )
    assert main([*command, "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["heads"] == {"encoder.0": [1]}


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


def test_the_command_factorizes(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "small"
    assert main(["prune", str(trained), "--rank", "4", "--out", str(folder), "--examples", "8"]) == 0
    said = capsys.readouterr().out
    assert "encoder.0.attention: ranks q 4, k 4, v 4, out 4" in said and "parameters:" in said
    assert main(["translate", str(folder), "b a"]) == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "nothing would be removed; give heads, neurons, layers or a rank, such as --heads 30%"),
        (["--heads", "100%"], "--heads is a share from 0% to below 100%, not 100%"),
        (["--heads", "many"], "--heads is a share such as 30% or 0.3, not 'many'"),
        (["--heads", "encoder.0:x"], "--heads names heads as LAYER:HEADS, such as decoder.0:1,3, not 'encoder.0:x'"),
        (["--heads", "encoder.0:0,1"], "all 2 heads of encoder.0 would be removed; keep one at least, or remove whole"),
        (["--heads", "encoder.3:0"], "there is no attention layer 'encoder.3'; did you mean 'encoder.0'"),
        (["--heads", "30%", "--keep", "encoder.0:0"], "give heads to remove or heads to keep, not both"),
        (
            ["--heads", "30%", "--by", "magic"],
            "there is no measure of importance 'magic'; there is: gradient, ablation",
        ),
        (["--neurons", "20%", "--by", "gates"], "the measure of importance (gates) chooses a share of the heads"),
        (["--heads", "encoder.0:0", "--by", "gradient"], "no share is given; give one, such as 30%, or leave"),
        (["--neurons", "2"], "--neurons is a share from 0% to below 100%, not 2"),
        (["--rank", "half"], "--rank is a rank such as 16, or a share such as 50%, not 'half'"),
        (
            ["--rank", "100"],
            "a rank of 100 saves nothing, as U V would have no fewer parameters than W; take 10 or less",
        ),
        (["--layers", "2"], "2 of 2 layers can't be removed: every stack keeps one at least"),
    ],
)
def test_mistakes(given: list[str], message: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["prune", str(trained), *given, "--out", str(tmp_path / "small"), "--examples", "8"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "small").exists()


def test_runs_without_weights_or_recipe(tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["prune", str(tmp_path / "none"), "--heads", "30%", "--out", str(tmp_path / "small")]) == 2
    assert "there is no run directory" in capsys.readouterr().err
    qkv.load(trained, "cpu").save(tmp_path / "bare", "qkv")
    (tmp_path / "bare" / "recipe.yaml").unlink()
    assert main(["prune", str(tmp_path / "bare"), "--heads", "30%", "--out", str(tmp_path / "small")]) == 2
    assert "has no recipe.yaml, which names its data; give a run that qkv trained" in capsys.readouterr().err
