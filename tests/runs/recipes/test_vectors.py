"""Vectors in a model: each word's in its token's row, frozen or not, and how much of a vocabulary they cover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_tiny import LANGUAGE_MODEL, write_text

from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.data.vectors.word2vec_format import write
from qkv.data.vectors.word_vectors import Vectors
from qkv.io.directories.build import build
from qkv.io.families import preset
from qkv.nn.models.transformer import TransformerModel
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.recipes.vectors import coverage, load_vectors, token_tables, words
from qkv.runs.train.train import train as train_run

WORDS = ("the", "cat", "sat", "mat", "unseen")
VECTORS = Vectors(WORDS, np.random.default_rng(0).normal(0.5, 3, (5, 8)).astype(np.float32))
TEXTS = ["the cat sat on the Mat"] * 3


def tokenizer_of(kind: str, **settings: Any) -> Tokenizer:
    return train(TokenizerSpec.from_dict({"kind": kind, **settings}), TEXTS)


def model_of(tokenizer: Tokenizer, name: str = "transformer", **sizes: Any) -> TransformerModel:
    sizes = {"vocab_size": tokenizer.vocab_size, "d_model": 8, "n_layers": 1, "n_heads": 2, **sizes}
    return build(preset(name, **sizes))


def test_every_word_gets_its_vector_and_the_rest_their_spread() -> None:
    tokenizer = tokenizer_of("word", vocab_size=100)
    model = model_of(tokenizer)
    found = load_vectors(model, tokenizer, VECTORS, texts=["the cat on the mat"])
    (table,) = token_tables(model)  # of both stacks and of the head
    for word, vector in (("the", "the"), ("Mat", "mat")):
        assert np.array_equal(table[tokenizer.id(word)].detach().numpy(), VECTORS[vector])
    rest = table[[i for i in range(len(table)) if i in (tokenizer.pad_id, tokenizer.unk_id, tokenizer.id("on"))]]
    assert rest.std().item() == pytest.approx(3, rel=0.6)
    assert table.requires_grad and model.head is not None and model.head.weight is table
    assert (found.found, found.words, found.tokens_found, found.tokens) == (4, 5, 3, 5)
    assert str(found) == (
        "4 of the tokenizer's 5 words have a vector (80.0%), and 3 of 5 running tokens (60.0%)"
    )  # `mat` in lowercase is unknown to the tokenizer


def test_frozen_tables_stay_as_they_are_in_training(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("word", vocab_size=100)
    model = model_of(tokenizer, "gpt", max_positions=8, tied=False)
    load_vectors(model, tokenizer, write(VECTORS, tmp_path / "v.bin"), frozen=True)
    ids = torch.tensor([tokenizer.encode(TEXTS[0])])
    model(ids).sum().backward()
    assert model.decoder is not None and model.decoder.embedding.weight.grad is None
    assert model.head is not None and model.head.weight.grad is not None


@pytest.mark.parametrize(
    ("kind", "settings", "wanted"),
    [
        ("word", {}, {"the", "cat", "sat", "on", "Mat"}),
        ("bpe", {"vocab_size": 60, "byte_level": False, "min_frequency": 1}, {"the", "cat", "sat", "on", "Mat"}),
        ("bpe", {"vocab_size": 300, "min_frequency": 1}, {"cat", "sat", "on", "Mat"}),  # the first word has no space
        ("wordpiece", {"vocab_size": 60, "min_frequency": 1}, {"the", "cat", "sat", "on", "Mat"}),
        ("char", {}, set("thecasonM")),
    ],
)
def test_words_are_tokens_without_the_marks_of_their_tokenizer(
    kind: str, settings: dict[str, Any], wanted: set[str]
) -> None:
    found = dict(words(tokenizer_of(kind, **settings)))
    assert wanted <= set(found.values())
    assert not {"<pad>", "<unk>", "</s>", "##at", "##e"} & set(found.values())
    assert kind == "char" or "▁" not in "".join(found.values())


def test_coverage_without_a_text_is_of_the_vocabulary() -> None:
    found = coverage(tokenizer_of("word"), VECTORS)
    assert found.share == 0.8 and found.token_share is None
    assert str(found) == "4 of the tokenizer's 5 words have a vector (80.0%)"


def test_what_does_not_fit_is_told() -> None:
    tokenizer = tokenizer_of("word")
    with pytest.raises(ValueError, match=r"the vectors are 8 wide and the model's embedding 16; set model\.d_model=8"):
        load_vectors(model_of(tokenizer, d_model=16), tokenizer, VECTORS)
    other = Vectors(("Hund", "Katze"), np.ones((2, 8), np.float32))
    with pytest.raises(ValueError, match=r"words is among the 2 words of the vectors: .* like 'Hund', 'Katze'"):
        load_vectors(model_of(tokenizer), tokenizer, other)
    with pytest.raises(ValueError, match="no token embedding"):
        load_vectors(torch.nn.Linear(8, 8), tokenizer, VECTORS)


def test_a_recipe_begins_with_vectors(tmp_path: Path) -> None:
    path = write(Vectors(("the", "cat", "dog"), np.ones((3, 16), np.float32) * [[1], [2], [3]]), tmp_path / "v.txt")
    text = [f"data.path={write_text(tmp_path)}", "data.documents=line", "tokenizer=word", "model.tied=false"]
    lm = [s for s in LANGUAGE_MODEL if not s.startswith("tokenizer.")]
    recipe = Recipe.load("lm", [*lm, *text, f"vectors={{path: {path}, frozen: true}}"])
    train_run(recipe, tmp_path / "run", device="cpu")
    run = load(tmp_path / "run", device="cpu")
    assert run.recipe is not None and run.recipe.vectors == recipe.vectors
    assert run.tokenizer is not None and run.model.decoder is not None
    table = run.model.decoder.embedding.weight
    for word, value in (("the", 1), ("cat", 2), ("dog", 3)):
        assert (table[run.tokenizer.id(word)] == value).all()
    write(Vectors(("the", "cat"), np.ones((2, 5), np.float32)), path)
    with pytest.raises(ValueError, match="the vectors are 5 wide and the model's embedding 16"):
        train_run(recipe, tmp_path / "other", device="cpu")
    assert not (tmp_path / "other").exists()
