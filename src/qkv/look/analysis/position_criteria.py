"""Four criteria of a position scheme, computed from its module: unique, consistent, bounded and deterministic.

Also its values by distance, and at which distances they rise.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...core.layout import Grid, Layout
from ...core.several import worded
from ...nn.layers.patches import image_layout
from ...nn.positions.base import Position, PositionModule, Widths

NEAR = 64  # positions that are compared
LONG, FAR = 256, 1024  # lengths between which bounded values don't grow
D_MODEL, N_HEADS = 64, 4
D_HEAD = D_MODEL // N_HEADS
GRID = Grid(8, 8)  # of an image with NEAR patches


class PositionCriteria(NamedTuple):
    """What holds for positions 0 … NEAR − 1.

    unique: no two positions have the same code; for a bias, no two distances have the same bias.
    consistent: what two tokens add to their score depends on their distance alone, wherever they stand and however long
        the text is.
    bounded: values at positions up to FAR are no larger than at positions up to LONG; a table has no more than it has.
    deterministic: two modules with parameters drawn from different seeds agree, so nothing has to be trained.
    """

    unique: bool
    consistent: bool
    bounded: bool
    deterministic: bool

    def __str__(self) -> str:
        return ", ".join(f"{name}: {'yes' if holds else 'no'}" for name, holds in self._asdict().items())


@worded
def position_criteria(scheme: Position) -> PositionCriteria:
    """Compute the criteria. Parameters are drawn from a normal distribution. Raises ValueError for a scheme that needs more
    than the widths of a stack."""
    module = drawn_module(scheme, seed=0)
    codes = _codes(module, NEAR)
    apart = torch.cdist(codes, codes) + torch.eye(NEAR)
    long, far = (NEAR, NEAR) if module.max_positions or _on_grid(module) else (LONG, FAR)
    return PositionCriteria(
        unique=bool(apart.min() > 1e-5),
        consistent=_consistent(module),
        bounded=bool(_codes(module, far).norm(dim=1).max() <= 1.01 * _codes(module, long).norm(dim=1).max()),
        deterministic=torch.equal(codes, _codes(drawn_module(scheme, seed=1), NEAR)),
    )


def drawn_module(scheme: Position, seed: int) -> PositionModule:
    """The module of a scheme, with parameters drawn from a seed."""
    module = scheme.module(Widths(D_MODEL, N_HEADS, D_HEAD, NEAR, grid=GRID)).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.normal_(generator=generator)
    return module


@worded
def by_distance(scheme: Position) -> Tensor | None:
    """Return what a scheme gives a pair of tokens by their distance 0 … NEAR − 1, (NEAR,); None without positions.

    For what is added to the embeddings it is p₀ · p_k. For rotations it is the dot product of a query and an earlier key of
    ones, divided by their width. For biases it is that of head 0. Parameters are drawn.
    """
    module = drawn_module(scheme, seed=0)
    layout = layout_of(module, NEAR)
    if (added := module.embed(layout)) is not None:
        table = added.reshape(NEAR, -1).float()
        return table @ table[0]
    if (tables := module.tables(layout)) is not None:
        ones = torch.ones(1, NEAR, 1, D_HEAD)
        q, k = module.rotate_queries(ones, tables)[0, -1, 0], module.rotate_keys(ones, tables)[0, :, 0]
        return (k.flip(0) @ q) / D_HEAD
    bias = module.bias()
    return None if bias is None else bias(layout.queries(), layout.keys())[0, 0, -1].flip(-1).float()


@worded
def rises(values: Float[Tensor, " N"] | Sequence[float], tolerance: float = 1e-6) -> list[tuple[int, int]]:
    """The stretches (first, last) of indices between which values rise from each index to the next.

    `rises([3, 1, 2, 4, 0])` is [(1, 3)].
    """
    found = list[tuple[int, int]]()
    numbers = list(map(float, values))
    for i, (value, following) in enumerate(pairwise(numbers)):
        if following > value + tolerance:
            first = found.pop()[0] if found and found[-1][1] == i else i
            found.append((first, i + 1))
    return found


def described(scheme: Position) -> str:
    """The criteria in a sentence, and of what is computed and not trained, where its values by distance rise."""
    criteria = position_criteria(scheme)
    if not criteria.deterministic or (values := by_distance(scheme)) is None:
        return f"{str(criteria).capitalize()}."
    found = [f"{first}–{last}" for first, last in rises(values)]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    said = f"rises at distances {', '.join(found[:3])}{more}" if found else "never rises with distance"
    module = drawn_module(scheme, seed=0)
    return f"{str(criteria).capitalize()}; its {'bias' if module.bias() is not None else 'dot product'} {said}."


def layout_of(module: PositionModule, length: int) -> Layout:
    """The layout of `length` tokens, or of the patches of an image for a module over a grid."""
    return image_layout(GRID) if _on_grid(module) else Layout.full(length)


def _on_grid(module: PositionModule) -> bool:
    return getattr(module, "grid", None) is not None


def _codes(module: PositionModule, length: int) -> Tensor:
    """One row for each position: its vector, rotated keys, or for a bias the values at each distance; zeros without."""
    layout = layout_of(module, length)
    if (added := module.embed(layout)) is not None:
        return added.reshape(length, -1).float()
    if (tables := module.tables(layout)) is not None:
        return module.rotate_keys(_contents().expand(1, length, -1, -1), tables)[0].flatten(1)
    if (bias := module.bias()) is not None:
        last = layout.slice(length - 1, length)
        return bias(last.queries(), layout.keys())[0, :, 0].float().T
    return torch.zeros(length, 1)


def _contents() -> Tensor:
    """Four vectors (1, 1, 4, D_HEAD) that stand for the contents of a token."""
    return torch.randn(1, 1, N_HEADS, D_HEAD, generator=torch.Generator().manual_seed(0))


def _scores(module: PositionModule, length: int) -> Tensor:
    """(H, T, T): what positions make of the scores of tokens with the same contents everywhere."""
    layout = layout_of(module, length)
    if (added := module.embed(layout)) is not None:
        table = added.reshape(length, -1).float()
        return (table @ table.T)[None]
    if (tables := module.tables(layout)) is not None:
        everywhere = _contents().expand(1, length, -1, -1)
        q, k = module.rotate_queries(everywhere, tables)[0], module.rotate_keys(everywhere.flip(2), tables)[0]
        return torch.einsum("thd,shd->hts", q, k)
    bias = module.bias()
    return torch.zeros(1, length, length) if bias is None else bias(layout.queries(), layout.keys())[0].float()


def _consistent(module: PositionModule) -> bool:
    """Whether scores are a function of the distance, the same in a text of half the length."""
    scores = _scores(module, NEAR)
    if _on_grid(module):
        place = layout_of(module, NEAR).positions[0, :, 1:]
        offset = (place[:, None] - place[None] + 2 * NEAR) @ torch.tensor([8 * NEAR, 1])
    else:
        offset = torch.arange(NEAR)[:, None] - torch.arange(NEAR) + NEAR
    _, group = offset.flatten().unique(return_inverse=True)
    flat = scores.flatten(1)
    sums = torch.zeros(len(flat), int(group.max()) + 1).index_add_(1, group, flat)
    means = sums / torch.bincount(group)
    allowed = 1e-4 * float(scores.abs().max().clamp(min=1))
    half = scores if _on_grid(module) else _scores(module, NEAR // 2)
    same = (scores[:, : half.shape[1], : half.shape[2]] - half).abs().max() <= allowed
    return bool((flat - means[:, group]).abs().max() <= allowed) and bool(same)
