"""The block map of the Triton kernels: decoded again, it allows exactly the pairs that pattern, segments and padding do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qkv.core.graphs import registered
from qkv.core.layout import Layout, Role
from qkv.nn.kernels.flash import _map
from qkv.nn.kernels.flash.block_map import Tiles
from qkv.nn.kernels.flash.boxes import boxes
from qkv.nn.kernels.plan import Plan, allowed_mask
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import (
    Pattern,
    by_head,
    causal,
    dilated,
    full,
    global_tokens,
    sinks,
    strided,
    window,
)

HEADS, T = 3, 45


LAYOUTS = {
    "plain": lambda: Layout.full(T),
    "right": lambda: Layout.from_lengths([T, 20, 0], T),
    "left": lambda: Layout.from_lengths([T, 33], side="left"),
    "holes": lambda: Layout.from_mask(torch.rand(2, T) < 0.4),
    "packed": lambda: Layout.packed([[20, 25], [3, 30, 7]], T),
    "roles": lambda: Layout.full(T).with_roles(torch.where(torch.arange(T) % 9 == 0, int(Role.GLOBAL), 4)[None]),
}
PATTERNS: dict[str, Pattern] = {
    "full": full(),
    "causal": causal(),
    "sinks": causal() & (window(5) | sinks(3)),
    "dilated": causal() & dilated(3, 4),
    "strided": strided(6),
    "heads": by_head(causal(), dilated(3, 2), full()),
    "roles": window(4) | global_tokens(),
    "nothing": ~full(),
}


def made(pattern: Pattern, layout: Layout, kv_layout: Layout, rows: int, cols: int) -> Tiles:
    q, k = (
        torch.zeros(max(x.shape[0] for x in (layout, kv_layout)), x.shape[1], HEADS, 8) for x in (layout, kv_layout)
    )
    request = Request(q, k, k, pattern, layout, kv_layout, None, 1.0, 0.0, None, False, Plan())
    return Tiles(*_map(request, rows, cols))


def decoded(tiles: Tiles, pattern: Pattern, rows: int, cols: int) -> Tensor:
    """(R, H, n_q · rows, n_k · cols): what the kernels make of a map."""
    r, n_q, n_k = tiles.columns.shape
    seen = torch.zeros(r, HEADS, n_q * rows, n_k * cols, dtype=torch.bool)
    found = boxes(pattern)
    for b in range(r):
        for i in range(n_q):
            whole, listed = tiles.column_counts[b, i].tolist()
            for n, j in enumerate(tiles.columns[b, i, :listed].tolist()):
                tile = seen[b, :, i * rows : (i + 1) * rows, j * cols : (j + 1) * cols]
                q, k = tiles.q_place[b, i * rows :][:rows, None], tiles.k_place[b, j * cols :][None, :cols]
                assert (int(tiles.kind[b, i, j]) == 0) == (n < whole)
                if n < whole:
                    tile |= True
                    assert (q >= 0).all() and (k >= 0).all()
                    continue
                real = (q >= 0) & (k >= 0)
                if tiles.q_segment.ndim == 2:
                    real &= tiles.q_segment[b, i * rows :][:rows, None] == tiles.k_segment[b, j * cols :][None, :cols]
                if found is None:
                    words = tiles.rule[int(tiles.kind[b, i, j]) - 1]
                    tile |= real & ((words[..., None] >> torch.arange(cols)) & 1).bool()
                    continue
                for low, high, *bounds in tiles.rule.tolist()[: len(found)]:
                    within = (q - k >= low) & (q - k <= high) & (q >= bounds[0]) & (q <= bounds[1])
                    tile |= real & within & (k >= bounds[2]) & (k <= bounds[3])
    return seen


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_map_allows_exactly_what_the_pattern_does(pattern: str, layout: str) -> None:
    sides = (32, 64) if layout == "plain" else (16, 32)
    places, rule = LAYOUTS[layout](), PATTERNS[pattern]
    tiles = made(rule, places, places, *sides)
    seen = decoded(tiles, rule, *sides)
    real = places.valid
    wanted = allowed_mask(rule, places, places, HEADS)
    wanted = torch.ones(1, 1, 1, 1, dtype=torch.bool) if wanted is None else wanted
    wanted = wanted & real[:, None, :, None] & real[:, None, None, :]
    assert torch.equal(seen[:, :, :T, :T], wanted.expand(len(seen), HEADS, T, T))
    assert not seen[:, :, T:].any() and not seen[..., T:].any()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_and_columns_list_the_same_tiles(pattern: str) -> None:
    tiles = made(PATTERNS[pattern], LAYOUTS["packed"](), LAYOUTS["packed"](), 16, 32)

    def pairs(lists: Tensor, counts: Tensor, which: int) -> set[tuple[int, ...]]:
        first = counts[..., 0] if which else torch.zeros_like(counts[..., 0])
        last = counts[..., 1] if which else counts[..., 0]
        return {
            (b, a, other)
            for b in range(lists.shape[0])
            for a in range(lists.shape[1])
            for other in lists[b, a, first[b, a] : last[b, a]].tolist()
        }

    for which in (0, 1):
        by_rows = pairs(tiles.columns, tiles.column_counts, which)
        assert by_rows == {(b, i, j) for b, j, i in pairs(tiles.rows, tiles.row_counts, which)}


@pytest.mark.parametrize("pattern", ["sinks", "heads"])
@pytest.mark.parametrize("layout", ["plain", "packed", "roles"])
def test_a_graph_compiler_is_told_the_right_shapes(pattern: str, layout: str) -> None:
    places = LAYOUTS[layout]()
    marks = [[] if x is None else [x, x] for x in (places.segments, places.roles)]
    arguments = ([places.positions] * 2, *marks, PATTERNS[pattern].text, HEADS, 16, 32, torch.device("cpu"))
    registered("flash_tiles")
    torch.library.opcheck(torch.ops.qkv.flash_tiles, arguments, test_utils=("test_schema", "test_faketensor"))


def test_work_grows_with_the_window_and_not_with_the_square() -> None:
    counts = []
    for n in (1024, 4096):
        tiles = made(causal() & window(128), Layout.full(n), Layout.full(n), 64, 64)
        counts.append(int(tiles.column_counts[..., 1].sum()))
        assert tiles.rule.shape == (1, 6), "a window needs no masks"
    assert counts == [3 * n // 64 - 3 for n in (1024, 4096)], "three tiles a row, fewer in the first two"


def test_masks_are_made_for_partial_tiles_alone() -> None:
    n, pattern = 2048, causal() & dilated(16, 4)
    tiles = made(pattern, Layout.full(n), Layout.full(n), 64, 64)
    assert tiles.rule.shape[0] == int((tiles.kind > 0).sum()) <= 2 * n // 64


def test_a_layout_that_the_host_knows_is_not_asked_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Tensor] = []
    monkeypatch.setattr("qkv.nn.kernels.flash.make", lambda positions, *rest: given.extend(positions) or [positions[0]])
    layout = Layout.full(T, start=5)
    q = torch.zeros(1, T, HEADS, 8)
    _map(Request(q, q, q, causal(), layout, layout, None, 1.0, 0.0, None, False, Plan()), 16, 32)
    assert given[0] is not layout.positions and torch.equal(given[0], layout.positions)
