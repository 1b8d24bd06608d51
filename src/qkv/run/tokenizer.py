"""The tokenizer that a recipe asks for: trained on its data, or read from a file."""

from __future__ import annotations

from ..data.tokenizer import Tokenizer, train
from .recipe import Recipe


def make(recipe: Recipe, progress: bool = False) -> Tokenizer:
    """Train on every text of the training split, or read; the data's own markers become special tokens."""
    special = tuple(dict.fromkeys([*recipe.tokenizer.special, *recipe.data.special]))
    return train(recipe.tokenizer.replace(special=special), recipe.data.texts("train"), progress=progress)
