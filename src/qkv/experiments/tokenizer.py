"""Make the tokenizer of a recipe: train it on the data, read it from a file, or take that of the pretrained model."""

from __future__ import annotations

from collections.abc import Iterator

from ..data.source import Split
from ..recipes.recipe import Recipe
from ..tokenizers.tokenizer import Tokenizer, train
from ..tokenizers.training.spec import TokenizerSpec
from .pretrained import tokenizer_of


def make(recipe: Recipe, progress: bool = False) -> Tokenizer | None:
    """Train on every text of the training split, or read; the data's own markers become special tokens. None where the
    recipe has no use for one.

    Raises ValueError where there is none and texts are to be read.
    """
    task = recipe.task
    if task is not None and not task.needs_tokenizer:
        return None
    markers = (*recipe.data.special, *(task.special if task is not None else ()))
    if recipe.model.directory:
        return tokenizer_of(recipe.model.directory, markers, recipe.tokenizer)
    if recipe.tokenizer is None:
        raise ValueError("tokenizer is missing; give it as tokenizer=bpe")
    if recipe.source_tokenizer is not None:
        return _two(recipe, recipe.source_tokenizer, recipe.tokenizer, progress)
    spec = recipe.tokenizer.with_roles(task.roles if task is not None else ())
    special = tuple(dict.fromkeys([*spec.special, *markers]))
    return train(spec.replace(special=special), texts_of(recipe, "train"), progress=progress)


def _two(recipe: Recipe, source: TokenizerSpec, target: TokenizerSpec, progress: bool) -> Tokenizer:
    """One for each side, trained on it alone. The data's markers stand in sources."""
    special = tuple(dict.fromkeys([*source.special, *recipe.data.special]))
    read = train(source.replace(special=special), side_of(recipe, "train", "source"), progress=progress)
    return train(target, side_of(recipe, "train", "target"), progress=progress).with_sources(read)


def side_of(recipe: Recipe, split: Split, side: str) -> Iterator[str]:
    """The sources of a split of pairs, or the targets."""
    for example in recipe.data.examples(split, shuffle=False):
        if side not in example:
            raise ValueError("source_tokenizer is for data of pairs, and these are none; leave it out")
        yield example[side]


def texts_of(recipe: Recipe, split: Split) -> Iterator[str]:
    """Every text of a split that the tokenizer reads."""
    task = recipe.task
    if task is None:
        return recipe.data.texts(split)
    return (text for one in recipe.data.examples(split, shuffle=False) for text in task.texts(one))
