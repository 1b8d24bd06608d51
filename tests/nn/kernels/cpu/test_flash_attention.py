"""FlashAttention in plain PyTorch over sparse patterns: equal to the reference with its gradients, in tiles of any size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.block_map import block_map
from qkv.nn.kernels.cpu import flash_attention
from qkv.nn.kernels.cpu.flash_attention import tile_grid
from qkv.nn.patterns.basic import (
    Pattern,
    causal,
    chunks,
    dilated,
    fixed,
    global_tokens,
    random_blocks,
    sinks,
    strided,
    window,
)

HEADS = 4
ROLES = (torch.arange(61) % 20 == 3).long()[None]

CASES: dict[str, dict[str, Any]] = {
    "window": {"pattern": causal() & window(9)},
    "both sides": {"pattern": window(6)},
    "longformer": {"pattern": window(5) | global_tokens(3)},
    "longformer by roles": {"pattern": window(5) | global_tokens(), "layout": Layout.full(61).with_roles(ROLES)},
    "sinks": {"pattern": causal() & (window(5) | sinks(2))},
    "outside": {"pattern": causal() & ~window(6)},
    "random": {"pattern": causal() & (window(4) | random_blocks(4, 2, seed=1))},
    "chunks": {"pattern": chunks(8)},
    "fixed": {"pattern": fixed(8, 2)},
    "packed": {"pattern": window(3), "layout": Layout.packed([[20, 15, 26]])},
    "padded": {"pattern": causal(), "layout": Layout.from_lengths([50], 61)},
    "late": {
        "pattern": causal() & window(9),
        "layout": Layout.full(61, start=40),
        "kv_layout": Layout.full(61, start=30),
    },
}
GAPS: dict[str, Pattern] = {
    "dilated": dilated(4, 3),
    "dilated past": causal() & dilated(4, 3),
    "dilated in a window": dilated(9, 3) & window(14, 8),
    "strided": strided(6),
    "strided past": causal() & strided(6),
    "far": causal() & strided(6, "far"),
    "far of few": strided(200, "far"),
}


def both_ways(backend: str, options: dict[str, Any], t: int = 61, n_kv_heads: int = HEADS) -> list[Tensor]:
    """Output, log-sum-exp and gradients."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    tensors = [draw(2, t, n, width).requires_grad_() for n, width in ((HEADS, 8), (n_kv_heads, 8), (n_kv_heads, 5))]
    out, lse = attend(*tensors, return_lse=True, backend=backend, **options)
    value = (out * draw(2, t, HEADS, 5)).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * draw(2, HEADS, t)).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(value, tensors)]


@pytest.mark.parametrize("side", [3, 16, 256])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_with_its_gradients(case: str, side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def grid(pattern: Pattern, q: Layout, k: Layout, *_: Any) -> flash_attention.TileGrid:
        return flash_attention.TileGrid(side, side, block_map(pattern, q, k, side, side))

    monkeypatch.setattr(flash_attention, "tile_grid", grid)
    found, wanted = (both_ways(backend, CASES[case], n_kv_heads=2) for backend in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("t", [1, 5, 60, 61])
@pytest.mark.parametrize("case", GAPS)
def test_rules_with_gaps(case: str, t: int) -> None:
    found, wanted = (both_ways(backend, {"pattern": GAPS[case]}, t) for backend in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=1e-9)


def test_tiles_are_small_where_that_leaves_out_much() -> None:
    layout = Layout.full(4096)
    sides = {
        text: tile_grid(pattern, layout, layout, 8, "cpu")[:2]
        for text, pattern in {
            "causal": causal(),
            "window": causal() & window(256),
            "wide": causal() & window(2048),
        }.items()
    }
    assert sides == {"causal": (256, 256), "window": (64, 64), "wide": (256, 256)}


def test_nan_behind_the_window_stays_there() -> None:
    q, k, v = (torch.randn(1, 61, 2, 4) for _ in range(3))
    k[0, 9, 1] = float("inf")
    v[0, 17, 0] = float("nan")
    made, wanted = (attend(q, k, v, pattern=causal() & window(6), backend=b) for b in ("tiled", "reference"))
    torch.testing.assert_close(made, wanted, equal_nan=True)
    assert made[:, 23:].isfinite().all()


def test_windows_with_soft_caps_padding_and_biases() -> None:
    q, k, v = (torch.randn(2, 61, 2, 4) for _ in range(3))
    for options in ({"softcap": 2.0}, {"layout": Layout.from_lengths([50, 61])}, {"bias": torch.randn(61, 61)}):
        found, wanted = (attend(q, k, v, pattern=window(5), backend=b, **options) for b in ("tiled", "reference"))
        torch.testing.assert_close(found, wanted)
