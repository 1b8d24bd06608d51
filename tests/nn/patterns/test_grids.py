"""Neighborhoods and axes of images: pair by pair, from layouts and from numbers, verdicts, the count."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.layout import Grid, Layout
from qkv.nn.attention.attend import attend
from qkv.nn.layers.patches import image_layout, masked_layout
from qkv.nn.patterns.basic import Interval, Pattern, axial, by_head, causal, grid_windows, neighborhood

grids = st.builds(Grid, st.integers(1, 5), st.integers(1, 5), st.integers(0, 2), st.integers(0, 2))
kinds = st.one_of(
    st.builds(neighborhood, st.sampled_from([1, 3, 5])),
    st.builds(grid_windows, st.sampled_from([1, 2, 3])),
    st.builds(axial, st.sampled_from(["both", "row", "column"])),
)


def holds(pattern: Pattern, grid: Grid, q: int, k: int) -> bool:
    """The rule for two tokens of an image, by their numbers."""
    places = [divmod(at - grid.before, grid.columns) for at in (q, k)]
    if any(not 0 <= at - grid.before < grid.patches for at in (q, k)):
        return True
    (a, b), (c, d) = places
    if pattern.kind == "neighborhood":
        return max(abs(a - c), abs(b - d)) <= (pattern.size - 1) / 2  # type: ignore[attr-defined]
    if pattern.kind == "grid-windows":
        size = pattern.size  # type: ignore[attr-defined]
        return (a // size, b // size) == (c // size, d // size)
    return {"row": a == c, "column": b == d, "both": a == c or b == d}[pattern.along]  # type: ignore[attr-defined]


@given(kinds, grids)
def test_allowed_is_the_rule_pair_by_pair(pattern: Pattern, grid: Grid) -> None:
    wanted = [[holds(pattern, grid, q, k) for k in range(grid.tokens)] for q in range(grid.tokens)]
    assert pattern.mask(image_layout(grid)).tolist() == wanted, "from the layout's axes"
    assert pattern.replace(grid=grid).mask(grid.tokens).tolist() == wanted, "from numbers alone"


@settings(max_examples=200)
@given(kinds, grids, st.data())
def test_block_verdicts_never_contradict_the_rule(pattern: Pattern, grid: Grid, data: st.DataObject) -> None:
    token = st.integers(0, grid.tokens - 1)
    q, k = (sorted((data.draw(token), data.draw(token))) for _ in range(2))
    part = pattern.replace(grid=grid).mask(grid.tokens)[q[0] : q[1] + 1, k[0] : k[1] + 1]
    maybe, surely = pattern.replace(grid=grid).block(Interval(*q), Interval(*k))
    assert bool(maybe) or not part.any()
    assert not bool(surely) or bool(part.all())
    rows, columns = Interval(*(torch.tensor([[x]]) for x in q)), Interval(*(torch.tensor([x, x]) for x in k))
    for one, many in zip((maybe, surely), pattern.replace(grid=grid).block(rows, columns), strict=True):
        assert torch.as_tensor(many).expand(1, 2).tolist() == [[bool(one)] * 2]
    assert pattern.block(rows, columns)[0].all(), "without a grid nothing is known about a block"


@pytest.mark.parametrize(
    "pattern, q, k, verdict",
    [
        (neighborhood(7), (0, 63), (192, 255), (True, False)),  # rows 0 and 3
        (neighborhood(7), (0, 63), (256, 319), (False, False)),
        (neighborhood(7), (0, 3), (64, 67), (True, True)),
        (neighborhood(7), (0, 3), (72, 79), (False, False)),
        (axial(), (0, 63), (64, 127), (True, False)),
        (axial("row"), (0, 63), (64, 127), (False, False)),
        (axial("row"), (0, 31), (32, 63), (True, True)),
        (axial("column"), (0, 0), (64, 64), (True, True)),
        (axial("column"), (0, 7), (72, 79), (False, False)),
    ],
)
def test_blocks_are_decided_where_they_can_be(pattern: Pattern, q: tuple, k: tuple, verdict: tuple) -> None:
    found = pattern.replace(grid=Grid(64, 64)).block(Interval(*q), Interval(*k))
    assert tuple(map(bool, found)) == verdict


@settings(max_examples=30, deadline=None)
@given(kinds, st.integers(1, 120))
def test_a_number_of_tokens_is_a_square_image(pattern: Pattern, n: int) -> None:
    side = int(n**0.5)
    grid = Grid(side, side, n - side * side)
    assert torch.equal(pattern.mask(n), pattern.mask(image_layout(grid)))
    assert pattern.pairs(n) == int(pattern.mask(n).sum()) and pattern.fully_masked(n) == []
    assert (causal() & ~pattern).pairs(n) == int((causal() & ~pattern).mask(n).sum())


def test_pairs_of_an_image() -> None:
    assert axial().pairs(64 * 64) == 64**2 * (64 + 64 - 1)
    assert neighborhood(3).pairs(64 * 64) == (3 * 64 - 2) ** 2
    assert neighborhood(3).pairs(14 * 14 + 1) == (3 * 14 - 2) ** 2 + 2 * 196 + 1, "the class token of a ViT"


def test_hidden_patches_keep_their_places() -> None:
    grid = Grid(4, 5, before=1)
    layout = masked_layout(grid, torch.rand(2, 20, generator=torch.Generator().manual_seed(0)), 0.5)
    numbers = layout.positions[0, :, 0].tolist()
    wanted = [[holds(neighborhood(3), grid, q, k) for k in numbers] for q in numbers]
    assert neighborhood(3).mask(layout).tolist() == wanted


@pytest.mark.parametrize("grid", [None, Grid(6, 7, 1)])
def test_backends_agree_on_images(grid: Grid | None) -> None:
    pattern = by_head(neighborhood(3, grid), axial("row", grid), axial("column", grid))
    layout = image_layout(Grid(6, 7, 1))
    q, k, v = torch.randn(3, 2, 43, 6, 8, dtype=torch.float64)
    expected = attend(q, k, v, pattern=pattern, layout=layout, backend="reference")
    for backend in ("tiled", "sdpa"):
        torch.testing.assert_close(attend(q, k, v, pattern=pattern, layout=layout, backend=backend), expected)


@given(kinds, st.none() | grids)
def test_json_round_trip(pattern: Pattern, grid: Grid | None) -> None:
    whole = pattern.replace(grid=grid)
    again = Pattern.from_json(whole.to_json())
    assert again == whole and hash(again) == hash(whole) and again.to_json() == whole.to_json()


def test_wrong_values_are_refused() -> None:
    views = Layout.full(4).queries(), Layout.full(4).keys()
    with pytest.raises(ValueError, match=r"needs the layout of an image, or grid=\(rows, columns, before, after\)"):
        neighborhood(3).allowed(*views)
    with pytest.raises(ValueError, match="size of a neighborhood must be odd, so it has a center, not 4"):
        neighborhood(4)
    with pytest.raises(ValueError, match="size: input should be greater than 0, not -1"):
        neighborhood(-1)
    with pytest.raises(ValueError, match=r"at least one row and one column, not \(0, 4, 0, 0\)"):
        axial(grid=(0, 4))
