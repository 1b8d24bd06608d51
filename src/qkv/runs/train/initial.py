"""The model of a training before its first step: its initial weights or a trained model's, and its adapter."""

from __future__ import annotations

import itertools
from typing import Any

from rich.console import Console
from torch import nn

from ...core.spec import counted
from ...io.directories.build import build, outline
from ...nn.layers.lora import adapt
from ...nn.models.initialization import Draws
from ...nn.models.replace import Replaced
from ..recipes.vectors import load_vectors
from .notes import TEXTS
from .prepare import Prepared, tell
from .pretrained import model_of, note_of_untrained_tables


def initial_model(prepared: Prepared, console: Console) -> tuple[Any, Draws | None, list[str]]:
    """Build or load the model, with its initial weights and its adapter. Returns it with notes on its word vectors.

    If ranks divide a new model, it is an outline, and the second result are the draws of its weights.
    """
    recipe, loaded = prepared.recipe, prepared.recipe.model.directory
    model: Any
    if not loaded and recipe.vectors is None and recipe.adapter is None and prepared.members.divides:
        return *outline(prepared.spec, device=prepared.device, seed=recipe.seed), []
    if loaded:
        replaced = model_of(recipe.model, prepared.spec.vocab_size, prepared.device, recipe.seed)
        model = replaced.model
        if replaced.new:
            tell(console, f"From {loaded}: {_listed(replaced)}.")
    else:
        model = build(prepared.spec, device=prepared.device, seed=recipe.seed)
    notes = _begin_with_vectors(model, prepared)
    if recipe.adapter is None:
        return model, None, notes
    adapted = adapt(model, recipe.adapter, seed=recipe.seed)
    if loaded and (note := note_of_untrained_tables(adapted, prepared.spec.vocab_size, loaded)):
        tell(console, note)
    return adapted, None, notes


def _begin_with_vectors(model: nn.Module, prepared: Prepared) -> list[str]:
    choice, vectors, tokenizer = prepared.recipe.vectors, prepared.vectors, prepared.tokenizer
    if choice is None or vectors is None or tokenizer is None:
        return []
    texts = list(itertools.islice(prepared.recipe.data.texts("train"), TEXTS))
    coverage = load_vectors(model, tokenizer, vectors, choice.frozen, texts)
    notes = [f"{choice.path}: {note}." for note in vectors.notes]
    return [*notes, f"Vectors: {coverage}, counted in {counted(len(texts), 'training text')}."]


def _listed(replaced: Replaced[Any]) -> str:
    """The numbers of tensors that were kept and left out of a trained model, and the names of new ones."""
    names = ", ".join(replaced.new[:6]) + (f" and {len(replaced.new) - 6} more" if len(replaced.new) > 6 else "")
    return f"{counted(len(replaced.kept), 'tensor')} kept, {len(replaced.gone)} left out; new: {names}"
