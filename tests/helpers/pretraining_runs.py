"""Recipes of pre-training, as small as they come, and batches of them."""

from __future__ import annotations

from typing import Any

from qkv.data.loader.stream import stream
from qkv.io.directories.build import build
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.tokenizer import make

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


def small(name: str, *more: str) -> Recipe:
    return Recipe.load(name, [*SMALL, *MORE.get(name, []), *more])


def batch_of(name: str) -> tuple[Any, Any]:
    recipe = small(name)
    tokenizer = make(recipe)
    recipe = recipe.resolve_data(tokenizer)
    model = build(recipe.model.spec(400))
    seq2seq = model.is_encoder_decoder
    with stream(recipe.data, tokenizer, recipe.batching, seq2seq=seq2seq, task=recipe.task) as batches:
        return model, next(batches)
