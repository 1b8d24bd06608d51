"""The tokenizer that a recipe asks for: trained on its data, or read from a file, or that of the model it goes on with."""

from __future__ import annotations

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
    if task is None:
        texts = recipe.data.texts("train")
    else:
        texts = (text for one in recipe.data.examples("train", shuffle=False) for text in task.texts(one))
    return train(spec.replace(special=special), texts, progress=progress)
