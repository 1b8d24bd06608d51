"""A trained model with mechanisms exchanged: every weight that still fits is kept, and what is new is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..attention.multi_head import MultiHeadAttention
from ..layers.patches import GridEmbedding
from .build import build
from .transformer import TransformerModel

Model = TypeVar("Model", bound=TransformerModel)
Any_co = TypeVar("Any_co", covariant=True)


@dataclass(frozen=True)
class Replaced(Generic[Any_co]):
    """What became of a model.

    model:  of the changed spec.
    kept:   tensors with the numbers that they had, by name.
    pooled: keys and values of fewer heads, each the mean of those whose place it takes.
    cut:    tables of positions that have fewer rows now, or more, of which the first are kept.
    resized: tables of positions over the grid of an image, which has another grid now.
    new:    tensors that begin as in a new model.
    gone:   tensors that the model had before, and has no place for now.
    """

    model: Any_co
    kept: tuple[str, ...]
    pooled: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        lines = [f"kept {len(self.kept)} tensors"]
        for what in ("pooled", "cut", "resized", "new", "gone"):
            lines += [f"{what} {name}" for name in getattr(self, what)]
        return "\n".join(lines)


@torch.no_grad()
def replace(model: Model, changes: Mapping[str, Any], *, seed: int = 0) -> Replaced[Model]:
    """A model of `model.spec.replace(changes)` with the weights of `model` wherever they fit.

    Weights fit by name and shape. Where attention has fewer key-value heads now, each is the mean of those that it takes
    the place of, as grouped-query attention is made from multi-head attention (Ainslie et al. 2023, §2.1). A learned table
    of positions keeps its first rows; one over the grid of an image is resized as it is for images of another size
    (Dosovitskiy et al. 2021, §3.2). All else is drawn as in a new model, by (seed, name). The given model is unchanged.

    Raises ValueError where a path leaves the spec, or the changed spec is none.
    """
    changed = build(model.spec.replace(changes), device=model.device, dtype=model.dtype, seed=seed, cls=type(model))
    before, after = model.state_dict(), changed.state_dict(keep_vars=True)
    parts = _Parts.of(model), _Parts.of(changed)
    did: dict[str, list[str]] = {"kept": [], "pooled": [], "cut": [], "resized": [], "new": []}
    done: set[int] = set()
    for name, tensor in after.items():
        if id(tensor) in done:
            continue
        done.add(id(tensor))
        old = before.get(name)
        how, value = ("new", None) if old is None else _converted(name, old, tensor, *parts)
        did[how].append(name)
        if value is not None:
            tensor[tuple(slice(n) for n in value.shape)].copy_(value) if how == "cut" else tensor.copy_(value)
    gone = tuple(name for name in before if name not in after)
    changed.train(model.training)
    return Replaced(changed, **{how: tuple(names) for how, names in did.items()}, gone=gone)


class _Parts(NamedTuple):
    """Of a model, key-value heads and the widths of keys and values of every attention layer, by name, and positions over
    an image's grid, by the names of their tables."""

    heads: dict[str, tuple[int, int, int]]
    grids: dict[str, GridEmbedding]

    @classmethod
    def of(cls, model: TransformerModel) -> _Parts:
        parts = dict(model.named_modules())
        layers = {name: m for name, m in parts.items() if isinstance(m, MultiHeadAttention)}
        heads = {name: (m.n_kv_heads, m.d_head, m.d_value) for name, m in layers.items()}
        return cls(heads, {f"{name}.weight": m for name, m in parts.items() if isinstance(m, GridEmbedding)})


def _converted(name: str, old: Tensor, tensor: Tensor, before: _Parts, after: _Parts) -> tuple[str, Tensor | None]:
    """What becomes of a tensor whose name is in both models, and its numbers."""
    if name in before.grids and name in after.grids:
        return _over_grid(before.grids[name], after.grids[name])
    if old.shape == tensor.shape:
        return "kept", old
    layer, _, part = name.rpartition(".")[0].rpartition(".")
    if part in ("k", "v") and layer in before.heads and layer in after.heads:
        (count, *old_widths), (fewer, *new_widths) = before.heads[layer], after.heads[layer]
        width = old_widths[part == "v"]
        if old_widths == new_widths and count % fewer == 0 and old.shape[1:] == tensor.shape[1:]:
            grouped = old.unflatten(0, (fewer, count // fewer, width))
            return "pooled", grouped.float().mean(1).flatten(0, 1).to(old.dtype)
    if name.endswith("position.weight") and old.shape[1:] == tensor.shape[1:]:
        return "cut", old[: tensor.shape[0]]
    return "new", None


def _over_grid(old: GridEmbedding, new: GridEmbedding) -> tuple[str, Tensor | None]:
    """What becomes of a table of positions over a grid. Tokens beside the patches have to be the same in both."""
    if old.grid == new.grid and old.weight.shape == new.weight.shape:
        return "kept", old.weight
    beside = old.grid.before == new.grid.before and old.grid.after == new.grid.after
    if not beside or old.weight.shape[1] != new.weight.shape[1]:
        return "new", None
    return "resized", old.resized(new.grid)
