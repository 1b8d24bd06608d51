"""Every position scheme by the four classical criteria, measured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.positions.absolute import Learned, NoPosition, Sinusoidal
from qkv.nn.positions.axes import AxialRotary, MultimodalRotary
from qkv.nn.positions.base import Position, PositionModule, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rotary import Rotary
from qkv.nn.positions.tempered import TemperedRotary
from qkv.nn.positions.xpos import XPos

TRAINED = 64  # the context that schemes are made for here
WIDTHS = Widths(d_model=32, n_heads=4, d_head=16, max_positions=TRAINED)


def fresh(spec: Position, widths: Widths = WIDTHS) -> PositionModule:
    """The scheme's module, whatever it trains drawn anew."""
    module = spec.module(widths)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def code(module: PositionModule, positions: Tensor) -> Tensor:
    """What a scheme says of each position (of the distance from position 0, for a bias): (n, features)."""
    layout = Layout(positions[None])
    embedded, bias, tables = module.embed(layout), module.bias(), module.tables(layout)
    if embedded is not None:
        return embedded[0].detach()
    if tables is not None:
        return module.rotate_queries(torch.ones(1, len(positions), 1, WIDTHS.d_head), tables)[0, :, 0]
    if bias is not None:
        return bias(layout.queries(), Layout.full(1).keys())[0, :, :, 0].T.detach()
    return torch.zeros(len(positions), 1)


def scores(module: PositionModule, positions: Tensor) -> Tensor:
    """What positions alone do to the score of each (query, key) pair: (features, n, n)."""
    layout = Layout(positions[None])
    bias = module.bias()
    if bias is not None:
        return bias(layout.queries(), layout.keys())[0].detach()
    tables = module.tables(layout)
    rows = code(module, positions)
    if tables is None:
        return (rows @ rows.T)[None]
    return (rows @ module.rotate_keys(torch.ones(1, len(positions), 1, WIDTHS.d_head), tables)[0, :, 0].T)[None]


def is_unique(module: PositionModule) -> bool:
    rows = code(module, torch.arange(TRAINED))
    return bool((torch.cdist(rows, rows) + torch.eye(len(rows)) > 1e-4).all())


def is_distance_consistent(module: PositionModule) -> bool:
    made = scores(module, torch.arange(TRAINED))
    return all(
        torch.allclose(line, line[:, :1].expand_as(line), atol=1e-4)
        for d in range(-40, 41, 8)
        for line in [made.diagonal(d, 1, 2)]
    )


def is_bounded_beyond_training(module: PositionModule) -> bool:
    try:
        far = code(module, torch.arange(50 * TRAINED))
    except (IndexError, ValueError):
        return False
    return bool(far.abs().max() <= 1.01 * code(module, torch.arange(4 * TRAINED)).abs().max())


def is_deterministic(spec: Position) -> bool:
    positions = torch.arange(TRAINED)
    return torch.equal(code(fresh(spec), positions), code(fresh(spec), positions))


#                                          unique  consistent  bounded  deterministic
CRITERIA: dict[str, tuple[Position, tuple[bool, bool, bool, bool]]] = {
    "none": (NoPosition(), (False, True, True, True)),  # no order at all
    "sinusoidal": (Sinusoidal(), (True, True, True, True)),
    "concatenated": (Sinusoidal(arrangement="concatenated"), (True, True, True, True)),
    "learned": (Learned(), (True, False, False, False)),  # its table ends with training
    "rotary": (Rotary(), (True, True, True, True)),
    "interleaved": (Rotary(pairs="interleaved"), (True, True, True, True)),
    "xpos": (XPos(), (True, True, True, True)),
    "mrope": (MultimodalRotary(), (True, True, True, True)),
    "axial-rotary": (AxialRotary(), (True, True, True, True)),
    "tempered-rotary": (TemperedRotary(length=8), (True, False, False, True)),
    "alibi": (ALiBi(), (True, True, False, True)),  # defined everywhere, but it grows with distance
    "t5": (T5Buckets(), (False, True, True, False)),  # far distances share buckets
}


@pytest.mark.parametrize("name", CRITERIA)
def test_the_four_classical_criteria(name: str) -> None:
    spec, expected = CRITERIA[name]
    module = fresh(spec)
    measured = (
        is_unique(module),
        is_distance_consistent(module),
        is_bounded_beyond_training(module),
        is_deterministic(spec),
    )
    assert measured == expected


def test_the_table_holds_every_scheme() -> None:
    mine = {kind for kind, cls in Position.kinds.items() if cls.__module__.startswith("qkv.nn.positions.")}
    assert mine == {spec.kind for spec, _ in CRITERIA.values()}
