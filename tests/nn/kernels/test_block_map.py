"""Block maps: made from intervals, and never at odds with the mask of all pairs."""

from __future__ import annotations

from blocks_drawn import PATTERNS, layouts
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.kernels.block_map import block_map
from qkv.nn.patterns.basic import Pattern, causal, full, window


@given(st.sampled_from(PATTERNS), layouts(), layouts(), st.sampled_from([1, 3, 4]), st.sampled_from([1, 2, 5]))
def test_the_map_never_contradicts_the_mask(pattern: Pattern, q: Layout, k: Layout, rows: int, cols: int) -> None:
    b = max(q.shape[0], k.shape[0])
    if min(q.shape[0], k.shape[0]) not in (1, b):
        return
    x, y = q.queries(), k.keys()
    mask = pattern.allowed(x, y) & (x.segment == y.segment) & (x.position >= 0) & (y.position >= 0)
    mask = mask.expand(b, q.shape[1], k.shape[1])
    blocks = block_map(pattern, q, k, rows, cols)
    assert len(blocks.maybe) == -(-q.shape[1] // rows) and blocks.maybe.shape[1] == -(-k.shape[1] // cols)
    for i, flags in enumerate(blocks.maybe):
        for j, maybe in enumerate(flags):
            tile = mask[:, i * rows : (i + 1) * rows, j * cols : (j + 1) * cols]
            assert maybe or not tile.any()
            assert not blocks.surely[i][j] or tile.all()


def test_work_is_skipped_where_it_can_be() -> None:
    layout = Layout.full(64)
    blocks = block_map(causal() & window(8), layout, layout, 8, 8)
    assert [blocks.columns(i) for i in range(8)] == [[0], *([i - 1, i] for i in range(1, 8))]
    packed = Layout.packed([[16, 16]])
    assert block_map(full(), packed, packed, 16, 16).maybe.tolist() == [[True, False], [False, True]]
    assert block_map(full(), packed, packed, 16, 16).surely.tolist() == [[True, False], [False, True]]
    padded = Layout.from_lengths([8, 4], width=16)
    assert block_map(full(), padded, padded, 4, 4).maybe[0].tolist() == [True, True, False, False]
    assert block_map(full(), padded, padded, 4, 4).surely[0].tolist() == [True, False, False, False]
