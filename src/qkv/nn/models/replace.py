"""Change the architecture of a trained model: weights that still fit are kept, and the new ones are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...core.spec import brief
from ..attention.multi_head import MultiHeadAttention
from ..layers.patches import GridEmbedding
from ..layers.quantized import check_not_quantized
from ..positions.base import Position
from .build import build
from .stack import Stack
from .transformer import Transformer, TransformerModel

_POSITIONS = re.compile(r"(encoder|decoder)\.(position|block_positions\.\d+)\.")

Model = TypeVar("Model", bound=TransformerModel)
Any_co = TypeVar("Any_co", covariant=True)


@dataclass(frozen=True)
class Replaced(Generic[Any_co]):
    """Result of `replace`: the model of the changed spec, and the names of its tensors by origin.

    kept:    unchanged.
    pooled:  keys and values of fewer heads, each the mean of the heads that it replaces.
    cut:     tables of positions with fewer or more rows than before; the first rows are kept.
    resized: tables of positions over the grid of an image, interpolated to another grid.
    new:     initialized as in a new model.
    gone:    tensors that the model had before and has no place for now.
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
    """Return a model of `model.spec.replace(changes)` with the weights of `model` wherever they fit; `model` is unchanged.

    Weights fit by name and shape. Of fewer key-value heads each is the mean of the heads that it replaces, as grouped-query
    attention is made from multi-head attention (Ainslie et al. 2023, §2.1). A learned table of positions keeps its first
    rows; one over the grid of an image is interpolated, as for images of another size (Dosovitskiy et al. 2021, §3.2).
    Everything else is initialized as in a new model, by (seed, name).

    Raises ValueError if a path is not in the spec, or the changed spec is invalid.
    """
    if not isinstance(model, TransformerModel) or not isinstance(changes, Mapping):
        raise ValueError(f"give a Transformer and a dictionary of changes, not {brief(model)} and {brief(changes)}")
    check_not_quantized(model, "a change of the model")
    changed = build(model.spec.replace(changes), device=model.device, dtype=model.dtype, seed=seed, cls=type(model))
    changed.origin = model.origin
    before, after = _with_positions_of(changed.spec, model), changed.state_dict(keep_vars=True)
    parts = _Parts.of(model), _Parts.of(changed)
    names: dict[str, list[str]] = {"kept": [], "pooled": [], "cut": [], "resized": [], "new": []}
    done: set[int] = set()
    for name, tensor in after.items():
        if id(tensor) in done:
            continue
        done.add(id(tensor))
        old = before.get(name)
        how, value = ("new", None) if old is None else _converted(name, old, tensor, *parts)
        names[how].append(name)
        if value is not None:
            tensor[tuple(slice(n) for n in value.shape)].copy_(value) if how == "cut" else tensor.copy_(value)
    gone = tuple(name for name in model.state_dict() if name not in after)
    changed.train(model.training)
    return Replaced(changed, **{how: tuple(some) for how, some in names.items()}, gone=gone)


def _with_positions_of(changed: Transformer, model: TransformerModel) -> dict[str, Tensor]:
    """Return the tensors of a model; tensors of its position schemes have their names in the changed spec.

    A scheme that the changed spec does not have gives its tensors to the one in its place.
    """
    tensors = model.state_dict()
    own = {name: value for name, value in tensors.items() if not _POSITIONS.match(name)}
    old_stacks = dict(model.spec.stacks())
    for stack_name, new in changed.stacks():
        old = old_stacks.get(stack_name)
        for i, scheme in enumerate(new.positions if old is not None else ()):
            assert old is not None
            source = f"{stack_name}.{_position_name(_origin(i, scheme, old, new))}."
            target = f"{stack_name}.{_position_name(i)}."
            moved = {name: value for name, value in tensors.items() if name.startswith(source)}
            own |= {target + name.removeprefix(source): value for name, value in moved.items()}
    return own


def _origin(i: int, scheme: Position, old: Stack, new: Stack) -> int:
    """Return the index, among the old position schemes, of the one that the i-th new scheme continues."""
    if scheme in old.positions:
        return old.positions.index(scheme)
    first = new.blocks.index(new.with_position(scheme)[0]) if i else 0
    same_place = i and first < len(old.blocks)
    return old.positions.index(old.position_of(old.blocks[first])) if same_place else 0


def _position_name(i: int) -> str:
    """Return the name of the i-th position scheme's module in its stack."""
    return f"block_positions.{i - 1}" if i else "position"


class _Parts(NamedTuple):
    """Parts of a model that can be converted: key-value heads, width of keys and of values of each attention layer by name,
    and positions over an image's grid by the names of their tables."""

    heads: dict[str, tuple[int, int, int]]
    grids: dict[str, GridEmbedding]

    @classmethod
    def of(cls, model: TransformerModel) -> _Parts:
        parts = dict(model.named_modules())
        layers = {name: m for name, m in parts.items() if isinstance(m, MultiHeadAttention)}
        heads = {name: (m.n_kv_heads, m.d_head, m.d_value) for name, m in layers.items()}
        return cls(heads, {f"{name}.weight": m for name, m in parts.items() if isinstance(m, GridEmbedding)})


def _converted(name: str, old: Tensor, tensor: Tensor, before: _Parts, after: _Parts) -> tuple[str, Tensor | None]:
    """Return how a tensor that both models have is converted, and its new values."""
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
    """Return how a table of positions over a grid is converted; tokens beside the patches have to be the same in both."""
    if old.grid == new.grid and old.weight.shape == new.weight.shape:
        return "kept", old.weight
    beside = old.grid.before == new.grid.before and old.grid.after == new.grid.after
    if not beside or old.weight.shape[1] != new.weight.shape[1]:
        return "new", None
    return "resized", old.resized(new.grid)
