"""Position schemes: the textbook's properties, published numbers, and the four classical criteria, measured."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.positions.schemes import (
    ALiBi,
    Learned,
    NoPosition,
    Position,
    PositionModule,
    Rotary,
    Sinusoidal,
    T5Buckets,
    Widths,
)

TRAINED = 64  # the context that schemes are made for here
WIDTHS = Widths(d_model=32, n_heads=4, d_head=16, max_positions=TRAINED)


def fresh(spec: Position, widths: Widths = WIDTHS) -> PositionModule:
    """The scheme's module, whatever it trains drawn anew."""
    module = spec.module(widths)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


# -- sinusoids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 2])
def test_sinusoids_are_the_papers(offset: int) -> None:
    d = 6
    table = Sinusoidal(offset=offset).encode(torch.arange(5), d)
    for p in range(5):
        for i in range(d // 2):
            angle = (p + offset) / 10000 ** (2 * i / d)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("d", [2, 4, 10])
def test_rates_of_tensor2tensor(d: int) -> None:
    """`get_timing_signal_1d` of its code: rates from 1 to exactly 1/10000, sines before cosines."""
    spec, n = Sinusoidal(rates="tensor2tensor", arrangement="concatenated"), d // 2
    rates = [math.exp(-i * math.log(1e4 / 1.0) / max(n - 1, 1)) for i in range(n)]
    expected = [[f(p * rate) for f in (math.sin, math.cos) for rate in rates] for p in range(5)]
    torch.testing.assert_close(spec.encode(torch.arange(5), d), torch.tensor(expected), atol=1e-6, rtol=0)
    assert n == 1 or rates[-1] == pytest.approx(1e-4)
    assert d == 2 or not torch.allclose(spec.replace(rates="paper").encode(torch.arange(5), d), torch.tensor(expected))


def test_concatenated_is_interleaved_in_another_order() -> None:
    positions, d = torch.arange(20), 8
    interleaved = Sinusoidal().encode(positions, d)
    concatenated = Sinusoidal(arrangement="concatenated").encode(positions, d)
    assert torch.equal(concatenated, torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], 1))


@pytest.mark.parametrize("k", [1, 7, 40])
def test_a_shifted_sinusoid_is_a_linear_map_of_the_unshifted(k: int) -> None:
    """PE(p + k) = M_k PE(p) with one M_k for all p: rotations by k · rate of each (sin, cos) pair."""
    d, positions = 16, torch.arange(200)
    shift = torch.zeros(d, d)
    for i in range(d // 2):
        angle = k / 10000 ** (2 * i / d)
        c, s = math.cos(angle), math.sin(angle)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, s], [-s, c]])
    encode = Sinusoidal().encode
    torch.testing.assert_close(encode(positions + k, d), encode(positions, d) @ shift.T, atol=5e-5, rtol=0)


def test_nearer_sinusoids_have_larger_dot_products() -> None:
    table = Sinusoidal().encode(torch.arange(400), 512)
    for p in (0, 100, 250):
        products = table[p : p + 128] @ table[p]
        assert (products[:3].diff() < 0).all(), "the next positions fall one by one"
        near, middle, far = (products[a:b].mean() for a, b in ((0, 8), (8, 32), (32, 128)))
        assert near > middle > far


def test_padding_of_a_sinusoid_is_finite_and_odd_widths_are_refused() -> None:
    embedded = Sinusoidal().module(WIDTHS).embed(Layout.from_lengths([1, 3], side="left"))
    assert embedded is not None and embedded.isfinite().all()
    with pytest.raises(ValueError, match="an even d_model, not 7"):
        Sinusoidal().module(WIDTHS._replace(d_model=7))


# -- learned --------------------------------------------------------------------------------------------------------


def test_learned_rows_stand_behind_their_offset() -> None:
    module = fresh(Learned(offset=2))
    assert module.weight.shape == (TRAINED + 2, 32)  # type: ignore[union-attr]
    embedded = module.embed(Layout.from_lengths([2, 3], side="left"))
    assert embedded is not None
    assert torch.equal(embedded[1], module.weight[2:5])  # type: ignore[index]
    assert torch.equal(embedded[0, 1:], module.weight[2:4])  # type: ignore[index]
    assert Learned(offset=2).n_parameters(WIDTHS) == sum(p.numel() for p in module.parameters())
    with pytest.raises(ValueError, match="need max_positions"):
        Learned().module(WIDTHS._replace(max_positions=None))


# -- rotary ---------------------------------------------------------------------------------------------------------

ROTARIES = [Rotary(), Rotary(pairs="interleaved"), Rotary(fraction=0.5), Rotary(base=500.0)]


def turned(spec: Rotary, x: Tensor, positions: Tensor) -> Tensor:
    module = spec.module(WIDTHS)
    return module.rotate(x, module.tables(Layout(positions[None])))  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", ROTARIES, ids=str)
def test_rotary_is_complex_multiplication(spec: Rotary) -> None:
    x, positions, width = torch.randn(1, 9, 4, 16, dtype=torch.float64), torch.arange(9), spec.width(16)
    rate = spec.base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = (positions[:, None] * rate)[None, :, None]
    head, kept = x[..., :width], x[..., width:]
    pairs = (head[..., 0::2], head[..., 1::2]) if spec.pairs == "interleaved" else head.chunk(2, -1)
    z = torch.complex(*pairs) * torch.polar(torch.ones_like(angle), angle)
    parts = [z.real, z.imag]
    head = torch.stack(parts, -1).flatten(-2) if spec.pairs == "interleaved" else torch.cat(parts, -1)
    torch.testing.assert_close(turned(spec, x, positions), torch.cat([head, kept], -1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", ROTARIES, ids=str)
def test_rotary_scores_depend_on_the_distance_only(spec: Rotary) -> None:
    q, k = torch.randn(16), torch.randn(16)
    at = torch.arange(0, 90, 10)
    by_distance = [
        (turned(spec, q.expand(1, 9, 1, 16), at) * turned(spec, k.expand(1, 9, 1, 16), at + d)).sum(-1).flatten()
        for d in (0, 1, 13)
    ]
    for scores in by_distance:
        torch.testing.assert_close(scores, scores[:1].expand(9), atol=2e-4, rtol=0)
    assert abs(by_distance[0][0] - by_distance[2][0]) > 1e-2


def test_rotary_turns_in_fp32_whatever_the_dtype() -> None:
    x, far = torch.randn(1, 4, 1, 16).bfloat16(), torch.tensor([3000, 3001, 4093, 4095])
    exact = turned(Rotary(), x.double(), far)
    assert (turned(Rotary(), x, far).double() - exact).abs().max() < 0.02  # a bf16 angle would be off by radians
    assert turned(Rotary(), x, far).dtype == torch.bfloat16


@pytest.mark.parametrize("fraction, width", [(0.3, "4.8|4"), (0.1, "1"), (0.45, "7")])
def test_rotary_needs_pairs(fraction: float, width: str) -> None:
    if int(16 * fraction) % 2 == 0:
        assert Rotary(fraction=fraction).width(16) == int(16 * fraction)
        return
    with pytest.raises(
        ValueError, match=f"fraction {fraction} of d_head 16 is {width} coordinates, which has to be even"
    ):
        Rotary(fraction=fraction).width(16)


# -- ALiBi and T5 ---------------------------------------------------------------------------------------------------

# As the paper's code prints them (github.com/ofirpress/attention_with_linear_biases).
EIGHT = (0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625)
BETWEEN = (0.7071067811865476, 0.35355339059327384, 0.17677669529663692, 0.08838834764831849)
BELOW = (0.044194173824159244, 0.022097086912079626, 0.011048543456039816, 0.005524271728019908)
PUBLISHED = {8: EIGHT, 12: EIGHT + BETWEEN, 16: tuple(sorted(EIGHT + BETWEEN + BELOW, reverse=True))}


@pytest.mark.parametrize("n_heads", PUBLISHED)
def test_alibi_slopes_are_the_published_ones(n_heads: int) -> None:
    torch.testing.assert_close(torch.as_tensor(ALiBi().slopes(n_heads)), torch.tensor(PUBLISHED[n_heads]))


def test_alibi_falls_with_distance_on_both_sides() -> None:
    bias = ALiBi().module(WIDTHS._replace(n_heads=8)).bias()
    assert bias is not None
    made = bias(Layout.full(3, start=4).queries(), Layout.full(7).keys())
    assert made.shape == (1, 8, 3, 7)
    assert made[0, 0, 0].tolist() == [-2.0, -1.5, -1.0, -0.5, 0.0, -0.5, -1.0]
    assert made[0, 7, 2].tolist() == [-abs(6 - k) / 256 for k in range(7)]


def t5_bucket(relative: int, buckets: int, furthest: int, bidirectional: bool) -> int:
    """Raffel et al. 2020, §2.1, in whole numbers: half of the buckets for single offsets, the rest up to `furthest` by
    logarithm; `relative` is key minus query, and in both directions the future has the upper half."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(0, -relative)
    single = buckets // 2
    if distance < single:
        return first + distance
    wide = buckets - single
    # step s has begun once log(distance / single) / log(furthest / single) · wide ≥ s; as powers it needs no rounding
    ratio, whole = Fraction(distance, single) ** wide, Fraction(furthest, single)
    return first + single + max(s for s in range(wide) if ratio >= whole**s)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("buckets, furthest", [(32, 128), (16, 100), (8, 20), (32, 512)])
def test_t5_buckets_against_the_paper(buckets: int, furthest: int, bidirectional: bool) -> None:
    relative = torch.arange(-3 * furthest, 3 * furthest + 1)
    made = T5Buckets(buckets=buckets, max_distance=furthest, bidirectional=bidirectional).bucket(relative)
    assert made.tolist() == [t5_bucket(r, buckets, furthest, bidirectional) for r in relative.tolist()]
    used = set(made.tolist())
    assert used <= set(range(buckets)) and max(used) == buckets - 1


@pytest.mark.parametrize("buckets, furthest, bidirectional", [(32, 8, True), (4, 2, False), (64, 16, False)])
def test_t5_distances_that_leave_no_room_are_refused(buckets: int, furthest: int, bidirectional: bool) -> None:
    with pytest.raises(ValueError, match="max_distance"):
        T5Buckets(buckets=buckets, max_distance=furthest, bidirectional=bidirectional)


def test_t5_bias_reads_its_table() -> None:
    module = fresh(T5Buckets())
    bias, layout = module.bias(), Layout.full(6)
    assert bias is not None and bias.needs_grad
    made = bias(layout.queries(), layout.keys())
    for h, q, k in [(0, 0, 0), (3, 5, 1), (2, 1, 5)]:
        assert made[0, h, q, k] == module.weight[t5_bucket(k - q, 32, 128, True), h]  # type: ignore[index]
    assert T5Buckets().n_parameters(WIDTHS) == module.weight.numel()  # type: ignore[union-attr, operator]


# -- the four classical criteria ---------------------------------------------------------------------------------------


def code(module: PositionModule, positions: Tensor) -> Tensor:
    """What a scheme says of each position (of the distance from position 0, for a bias): (n, features)."""
    layout = Layout(positions[None])
    embedded, bias, tables = module.embed(layout), module.bias(), module.tables(layout)
    if embedded is not None:
        return embedded[0].detach()
    if tables is not None:
        return module.rotate(torch.ones(1, len(positions), 1, WIDTHS.d_head), tables)[0, :, 0]
    if bias is not None:
        return bias(layout.queries(), Layout.full(1).keys())[0, :, :, 0].T.detach()
    return torch.zeros(len(positions), 1)


def scores(module: PositionModule, positions: Tensor) -> Tensor:
    """What positions alone do to the score of each (query, key) pair: (features, n, n)."""
    layout = Layout(positions[None])
    bias = module.bias()
    if bias is not None:
        return bias(layout.queries(), layout.keys())[0].detach()
    rows = code(module, positions)
    return (rows @ rows.T)[None]


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
    mine = {kind for kind, cls in Position.kinds.items() if cls.__module__ == "qkv.positions.schemes"}
    assert mine == {spec.kind for spec, _ in CRITERIA.values()}
