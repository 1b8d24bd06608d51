"""A model that is neither a Transformer nor recurrent: built, trained, saved, loaded and asked like any other."""

from __future__ import annotations

import json
from pathlib import Path

import outside_model
import pytest
import torch
from outside_model import Convolutions
from run_untrained import words

import qkv
from qkv.runs.inference.run import Run
from qkv.runs.train.train import train

SPEC = Convolutions(vocab_size=128)


def test_it_is_built_and_its_costs_match_its_module() -> None:
    model = qkv.build(SPEC, seed=1)
    assert sum(p.numel() for p in model.parameters()) == SPEC.n_parameters
    assert type(SPEC).from_dict(SPEC.to_dict()) == SPEC
    torch.testing.assert_close(qkv.build(SPEC, seed=1).state_dict(), model.state_dict())


def test_prompts_of_any_lengths_share_a_batch() -> None:
    model = qkv.build(SPEC, seed=1).eval()
    together = qkv.generation.generate(model, [[5, 6, 7, 8, 9], [10]], max_new_tokens=4).sequences
    assert [
        qkv.generation.generate(model, [row], max_new_tokens=4).sequences[0] for row in ([5, 6, 7, 8, 9], [10])
    ] == (together)


def test_it_is_saved_without_a_tokenizer_and_loaded(tmp_path: Path) -> None:
    model = qkv.build(SPEC, seed=1).eval()
    with pytest.warns(UserWarning, match="no Hub family has models of the kind 'convolutions'"):
        model.save(tmp_path / "model")
    again = qkv.load(tmp_path / "model", device="cpu").model
    assert again.spec == SPEC
    ids = torch.arange(6)[None]
    torch.testing.assert_close(again(ids), model(ids))
    assert again.generate(ids, max_new_tokens=3).shape == (1, 9)


def test_texts_are_generated_scored_and_embedded() -> None:
    tokenizer = words()
    spec = SPEC.replace(vocab_size=tokenizer.vocab_size)
    run = Run(qkv.build(spec, seed=1).eval(), tokenizer)
    assert len(run.generate(["ab", "c"], max_new_tokens=3, num_beams=2)) == 2
    assert run.score(["abc"])[0].log_likelihood < 0
    assert run.embed(["abc"])[0].shape == (spec.d_model,)
    with pytest.raises(ValueError, match="does not classify"):
        run.classify(["abc"])


def test_it_trains_by_a_recipe_that_names_its_module(tmp_path: Path) -> None:
    recipe = qkv.Recipe.from_tree(
        {
            "name": "outside",
            "imports": [outside_model.__file__],
            "data": {"kind": "reverse", "train": 200, "validation": 20, "test": 20},
            "tokenizer": "char",
            "model": {"preset": "convolutions", "d_model": 16},
            "objective": "next-token",
            "batching": {"tokens": 256, "context": 64},
            "training": {"max_steps": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}},
            "evaluation": {"examples": 2, "test_examples": 2},
        }
    )
    done = train(recipe, tmp_path / "run", device="cpu")
    assert done.evaluation is not None
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["imports"] == [outside_model.__name__]
    run = qkv.load(tmp_path / "run", device="cpu")
    assert run.recipe is not None
    assert run.recipe.imports == (outside_model.__file__,)
    assert run.model.spec.d_model == 16
    config["qkv"]["kind"] = "unheard-of"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ValueError, match=r"there is no model 'unheard-of'.*it uses parts of .*outside_model"):
        qkv.load(tmp_path / "run")
