"""The tokenizer that a recipe asks for: trained on its data, or read from a file, or that of the model it goes on with."""

from __future__ import annotations

from ..data.tokenizer import Tokenizer, train
from .base import tokenizer_of
from .recipe import Recipe


def make(recipe: Recipe, progress: bool = False) -> Tokenizer:
    """Train on every text of the training split, or read; the data's own markers become special tokens."""
    if recipe.model.directory:
        return tokenizer_of(recipe.model.directory, recipe.data.special)
    special = tuple(dict.fromkeys([*recipe.tokenizer.special, *recipe.data.special]))
    return train(recipe.tokenizer.replace(special=special), recipe.data.texts("train"), progress=progress)
