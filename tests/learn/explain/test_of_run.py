"""A run explains a text with its own numbers, or says what it can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_tiny import LANGUAGE_MODEL, write_text
from run_untrained import of, vit, words

import qkv
from qkv.learn.explain.of_run import explain, subject
from qkv.nn.layers.lora import LoRA
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def test_a_runs_own_numbers():
    run = of("gpt2", words(), "continue", max_positions=32, n_layers=2)
    explanation = explain("attention", run, "ab", layer=1, head=1, token=1)
    assert "layer 1, head 1" in explanation.about and explanation.table("query q").rows == ("a",)


def test_a_translator_reads_a_target_or_its_own_output():
    run = of("transformer-base", words(), "translate")
    assert subject(run, "ab", "cd").target_tokens == ("<s>", "c", "d")
    assert subject(run, "ab").target_tokens[0] == "<s>"


def test_bad_input_is_refused():
    lm = of("gpt2", words(), "continue", max_positions=8)
    with pytest.raises(ValueError, match="reads one text; --target is for encoder–decoders, leave it out"):
        explain("attention", lm, "ab", "cd")
    with pytest.raises(ValueError, match="reads no text"):
        explain("attention", vit(), "ab")
    with pytest.raises(ValueError, match="are more than this model's context of 8"):
        explain("attention", lm, "abcdefghijkl")
    with pytest.raises(ValueError, match="--head 7 is not there: this run has heads 0 to 1 here"):
        explain("attention", lm, "ab", head=7)


def test_the_adapter_of_a_saved_run(trained_lm: Path, tmp_path: Path):
    size = [text for text in LANGUAGE_MODEL if not text.startswith(("model.", "tokenizer."))]
    data = [f"data.path={write_text(tmp_path)}", "data.documents=line"]
    adapter = [f"model={trained_lm}", "adapter={kind: lora, rank: 2, layers: '*.attention.q'}"]
    train(Recipe.load("lm", [*size, *data, *adapter]), tmp_path / "run", device="cpu")
    run, base = qkv.load(tmp_path / "run", "cpu"), qkv.load(trained_lm, "cpu")
    text = "abc"
    explanation = explain("lora", run, text)
    q = "decoder.blocks.0.attention.q"
    merged, frozen = (model.get_submodule(q).weight.detach() for model in (run.model, base.model))
    assert not torch.equal(merged, frozen)
    for caption, matrix in (("W, frozen", frozen), ("s · B A", merged - frozen), ("W'", merged)):
        shown = torch.tensor(explanation.table(caption).values)
        rows, columns = shown.shape  # a corner of a large matrix
        torch.testing.assert_close(shown, matrix[:rows, :columns], rtol=0, atol=1e-5)
    assert not hasattr(run.model, "adapter") or run.model.adapter is None  # unchanged
    assert torch.equal(run.model.get_submodule(q).weight, merged)


def test_an_adapter_that_was_not_kept():
    run = of("gpt2", words(), "continue", max_positions=8)
    with pytest.raises(ValueError, match="does not have a LoRA adapter, which lora explains"):
        explain("lora", run, "ab")
    tuned = replace(run, recipe=Recipe.load("lm", []).model_copy(update={"adapter": LoRA()}))
    with pytest.raises(
        ValueError, match="trained with a LoRA adapter, which is merged into its weights and was not saved"
    ):
        explain("lora", tuned, "ab")
