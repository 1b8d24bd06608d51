"""The tokenizer that a recipe asks for: trained on its data, or read from a file, or that of the model it goes on with."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.sources import Split
from ..data.tokenizer import Tokenizer, train
from .base import tokenizer_of
from .recipe import Recipe


def make(recipe: Recipe, progress: bool = False) -> Tokenizer | None:
    """Train on every text of the training split, or read; the data's own markers become special tokens. None where the
    recipe has no use for one.

    Raises ValueError where there is none and texts are to be read.
    """
    task = recipe.task
    if task is not None and not task.words:
        return None
    markers = (*recipe.data.special, *(task.special if task is not None else ()))
    if recipe.model.directory:
        return tokenizer_of(recipe.model.directory, markers)
    if recipe.tokenizer is None:
        raise ValueError("tokenizer is missing; give it as tokenizer=bpe")
    spec = recipe.tokenizer.with_roles(task.roles if task is not None else ())
    special = tuple(dict.fromkeys([*spec.special, *markers]))
    return train(spec.replace(special=special), texts_of(recipe, "train"), progress=progress)


def texts_of(recipe: Recipe, split: Split) -> Iterator[str]:
    """Every text of a split that the tokenizer reads."""
    task = recipe.task
    if task is None:
        return recipe.data.texts(split)
    return (text for one in recipe.data.examples(split, shuffle=False) for text in task.texts(one))
