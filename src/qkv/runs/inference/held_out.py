"""Batches of a run's own data, as its training and evaluation read them."""

from __future__ import annotations

from ...core.batch import Batch
from ...data.loader.stream import stream
from ...data.source import Split
from ..recipes.recipe import Recipe
from .loaded import LoadedModel


def recipe_of(run: LoadedModel) -> Recipe:
    """The recipe of a run. Raises ValueError if it has none, because it names the data."""
    if run.recipe is None:
        raise ValueError(f"{run.name} has no recipe.yaml, which names its data; give a run that qkv trained")
    return run.recipe


def batches(run: LoadedModel, split: Split, limit: int) -> list[Batch]:
    """The first batches of a split, with at least `limit` examples; for running text, rows of the context's width."""
    recipe, rows, read = recipe_of(run), 0, list[Batch]()
    batching = recipe.batching.replace(workers=0, shuffle=False)
    with stream(
        recipe.data,
        run.tokenizer,
        batching,
        seq2seq=run.model.is_encoder_decoder,
        task=recipe.task,
        split=split,
        seed=recipe.seed,
        epochs=1,
    ) as stored:
        for batch in stored:
            read.append(batch.to(run.model.device))
            rows += len(batch.texts) or batch.rows
            if rows >= limit:
                break
    return read
