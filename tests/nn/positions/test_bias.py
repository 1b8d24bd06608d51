"""Biases from positions: ALiBi's and T5's published numbers, and gradients by a scheme's own formula."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.positions.base import Bias, Position, PositionModule, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets

WIDTHS = Widths(d_model=32, n_heads=4, d_head=16, max_positions=64)


def fresh(spec: Position, widths: Widths = WIDTHS) -> PositionModule:
    """The scheme's module, whatever it trains drawn anew."""
    module = spec.module(widths)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


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


def test_the_schemes_own_gradient_matches_autograd() -> None:
    scheme, table = T5Buckets(buckets=8, max_distance=20), torch.randn(8, 3, dtype=torch.float64)
    q, k = Layout.full(5, start=2).queries(), Layout.full(9).keys()
    grad = torch.randn(2, 3, 5, 9, dtype=torch.float64)
    (own,) = scheme.bias_grad((table,), q, k, grad)
    assert own is not None
    table.requires_grad_()
    (scheme.bias((table,), q, k) * grad).sum().backward()
    torch.testing.assert_close(own, table.grad)


def test_the_gradient_with_a_layout_for_each_row() -> None:
    scheme, table = T5Buckets(buckets=8, max_distance=20), torch.randn(8, 3, dtype=torch.float64)
    layout = Layout.from_lengths([3, 5], side="left")
    q, k, grad = layout.queries(), layout.keys(), torch.randn(2, 3, 5, 5, dtype=torch.float64)
    (own,) = scheme.bias_grad((table,), q, k, grad)
    assert own is not None
    table.requires_grad_()
    (scheme.bias((table,), q, k) * grad).sum().backward()
    torch.testing.assert_close(own, table.grad)


def test_what_is_not_trained_has_no_gradient() -> None:
    scheme = ALiBi()
    slopes, layout = torch.as_tensor(scheme.slopes(2)), Layout.full(3)
    assert scheme.bias_grad((slopes,), layout.queries(), layout.keys(), torch.ones(1, 2, 3, 3)) == (None,)
    assert not Bias(scheme, (slopes,)).needs_grad


def test_needs_grad_follows_its_tensors_and_the_mode() -> None:
    bias = Bias(T5Buckets(), (torch.zeros(32, 2, requires_grad=True),))
    assert bias.needs_grad
    with torch.no_grad():
        assert not bias.needs_grad
