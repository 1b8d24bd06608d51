"""The model of a training before its first step: its initial weights or a trained model's, and its adapter."""

from __future__ import annotations

import itertools
from typing import Any

from rich.console import Console
from torch import Tensor, nn

from ...core.spec import counted
from ...io.directories.build import build, outline
from ...nn.layers.lora import LoRA, adapt, initial_factors, layers
from ...nn.models.initialization import Overlaid, Values
from ...nn.models.replace import Replaced
from ..recipes.vectors import load_vectors, token_tables
from .notes import TEXTS
from .prepare import Prepared, tell
from .pretrained import model_of, note_of_untrained_tables, origin_after, outline_of


def initial_model(prepared: Prepared, console: Console) -> tuple[Any, Values | None, list[str]]:
    """Build or load the model, with its initial weights and its adapter. Returns it with notes on its word vectors.

    If ranks divide the model, its parameters are on the meta device, and the second result are their values. A model is
    whole all the same if it can't be made so (`outline`, `outline_of`), or has another adapter than LoRA.
    """
    recipe, loaded = prepared.recipe, prepared.recipe.model.directory
    model, values = _outlined(prepared) or (_whole(prepared, console), None)
    if loaded:
        model.origin = origin_after(recipe, prepared.use)
    if values is None:
        notes = _begin_with_vectors(model, prepared)
    else:
        values, notes = _outline_with_vectors(model, values, prepared)
    if recipe.adapter is None:
        return model, values, notes
    adapted = adapt(model, recipe.adapter, seed=recipe.seed)
    if values is not None:
        values = Overlaid(values, dict(initial_factors(adapted, layers(adapted), recipe.seed)))
    if loaded and (note := note_of_untrained_tables(adapted, prepared.spec.vocab_size, loaded)):
        tell(console, note)
    return adapted, values, notes


def _outlined(prepared: Prepared) -> tuple[Any, Values] | None:
    """The model with its parameters on the meta device, and their values; None if the ranks need it whole."""
    recipe = prepared.recipe
    known = recipe.adapter is None or type(recipe.adapter).adapt is LoRA.adapt
    if not prepared.members.divides or not known:
        return None
    if recipe.model.directory:
        return outline_of(recipe.model, prepared.spec.vocab_size, prepared.device)
    model, draws = outline(prepared.spec, device=prepared.device, seed=recipe.seed)
    return None if draws is None else (model, draws)


def _whole(prepared: Prepared, console: Console) -> Any:
    recipe = prepared.recipe
    if not recipe.model.directory:
        return build(prepared.spec, device=prepared.device, seed=recipe.seed)
    replaced = model_of(recipe.model, prepared.spec.vocab_size, prepared.device, recipe.seed)
    if replaced.new:
        tell(console, f"From {recipe.model.directory}: {_listed(replaced)}.")
    return replaced.model


def _outline_with_vectors(model: nn.Module, values: Values, prepared: Prepared) -> tuple[Values, list[str]]:
    """Begin with word vectors if parameters are on the meta device: only the embedding tables are made meanwhile."""
    if prepared.vectors is None:
        return values, []
    tables = {id(table) for table in token_tables(model)}
    places = [(path, p) for path, p in model.named_parameters(remove_duplicate=False) if id(p) in tables]
    real = {id(p): nn.Parameter(values.value(path).to(p.dtype), p.requires_grad) for path, p in places}
    for path, table in places:
        _put(model, path, real[id(table)])
    notes = _begin_with_vectors(model, prepared)
    for path, table in places:
        _put(model, path, table.requires_grad_(real[id(table)].requires_grad))
    return Overlaid(values, {path: real[id(table)].detach() for path, table in places}), notes


def _put(model: nn.Module, path: str, parameter: Tensor) -> None:
    module, _, name = path.rpartition(".")
    setattr(model.get_submodule(module), name, parameter)


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
