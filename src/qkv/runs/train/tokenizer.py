"""Make the tokenizer of a recipe: train it on the data, read it from a file, or take that of the pretrained model."""

from __future__ import annotations

from collections.abc import Iterator

from ...data.ahead import training_texts
from ...data.source import Split
from ...data.tokenizers.tokenizer import Tokenizer, train
from ...data.tokenizers.training.spec import TokenizerSpec
from ..recipes.recipe import Recipe
from .kept_tokenizer import kept_or_trained
from .pretrained import tokenizer_of


def make(recipe: Recipe, progress: bool = False) -> Tokenizer | None:
    """Train the tokenizer on the texts of the training split, or load it. Markers of the data become special tokens. A
    tokenizer of texts that take time to compute is kept for the next training. Returns None if the recipe needs no
    tokenizer, as for images.

    Raises ValueError if the recipe needs one and names none.
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

    def trained() -> Tokenizer:
        return train(spec.replace(special=special), texts_of(recipe, "train"), progress=progress)

    return trained() if task is not None else kept_or_trained(recipe.data, recipe.tokenizer, trained)


def _two(recipe: Recipe, source: TokenizerSpec, target: TokenizerSpec, progress: bool) -> Tokenizer:
    """Train a tokenizer on the sources and another on the targets. Markers of the data occur in sources only."""
    special = tuple(dict.fromkeys([*source.special, *recipe.data.special]))
    sources = train(source.replace(special=special), side_of(recipe, "train", "source"), progress=progress)
    return train(target, side_of(recipe, "train", "target"), progress=progress).with_sources(sources)


def side_of(recipe: Recipe, split: Split, side: str) -> Iterator[str]:
    """The sources of a split of pairs, or the targets."""
    for example in recipe.data.examples(split, shuffle=False):
        if side not in example:
            raise ValueError("source_tokenizer needs pairs, and these data have no sources and targets; leave it out")
        yield example[side]


def texts_of(recipe: Recipe, split: Split) -> Iterator[str]:
    """All texts of a split that the tokenizer reads."""
    task = recipe.task
    if task is None:
        return training_texts(recipe.data) if split == "train" else recipe.data.texts(split)
    return (text for one in recipe.data.examples(split, shuffle=False) for text in task.texts(one))
