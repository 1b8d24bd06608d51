"""Linformer's projection against its equation, row by row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from qkv.attention.mechanisms.linformer import linformer
from qkv.core.layout import Layout

H, K, D, E, RANK, N = 4, 2, 6, 5, 3, 9


def drawn(rows: int, t: int, shared: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    heads = 1 if shared else K
    shapes = [(rows, t, H, D), (rows, t, K, D), (rows, t, K, E), (heads, RANK, N), (heads, RANK, N)]
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def alone(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, scale: float) -> Tensor:
    """One unpadded row, head by head: softmax(scale · Q (E K)ᵀ) F V."""
    out = []
    for head in range(H):
        group, t = head // (H // K), len(q)
        e_h, f_h = e[group % len(e), :, :t], f[group % len(f), :, :t]
        weights = (scale * q[:, head] @ (e_h @ k[:, group]).T).softmax(-1)
        out.append(weights @ (f_h @ v[:, group]))
    return torch.stack(out, 1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("side", ["none", "right", "left", "holes"])
def test_every_row_is_as_if_alone(side: str, shared: bool) -> None:
    lengths = [7, 7] if side == "none" else [7, 2, 5]
    q, k, v, e, f = drawn(len(lengths), 8 if side != "none" else 7, shared)
    layout = Layout.full(7)
    if side in ("right", "left"):
        layout = Layout.from_lengths(lengths, 8, side)  # type: ignore[arg-type]
    elif side == "holes":
        mask = torch.zeros(3, 8, dtype=torch.bool)
        for row, n in enumerate(lengths):
            mask[row, torch.randperm(8, generator=torch.Generator().manual_seed(row))[:n]] = True
        layout = Layout.from_mask(mask)
    k, v = (t.masked_fill(~layout.valid[..., None, None], float("nan")) for t in (k, v))
    found = linformer(q, k, v, e, f, layout, scale=0.4)
    for row in range(len(lengths)):
        real = layout.valid.expand(len(lengths), -1)[row]
        wanted = alone(q[row, real], k[row, real], v[row, real], e, f, 0.4)
        torch.testing.assert_close(found[row, real], wanted)
        assert not found[row, ~real].any()


def test_a_projection_that_selects_is_attention_to_what_it_selects() -> None:
    q, k, v, *_ = drawn(1, N, True)
    chosen = torch.eye(N, dtype=torch.float64)[None, [1, 4, 8]]
    found = linformer(q, k, v, chosen, chosen, Layout.full(N), 1.0)
    whole = torch.eye(N, dtype=torch.float64)[None]
    wanted = linformer(q, k[:, [1, 4, 8]], v[:, [1, 4, 8]], whole[:, :3], whole[:, :3], Layout.full(3), 1.0)
    torch.testing.assert_close(found, wanted)


def test_what_does_not_fit() -> None:
    q, k, v, e, f = drawn(1, N + 2, True)
    with pytest.raises(ValueError, match=r"11 tokens don't fit .* max_positions=9"):
        linformer(q, k, v, e, f, Layout.full(N + 2), 1.0)
    with pytest.raises(ValueError, match="several documents"):
        linformer(q, k, v, e, f, Layout.packed([[4, 7]]), 1.0)
    padded = Layout.from_lengths([N], N + 2, "left")  # wider than the projection, but its tokens fit
    assert bool(linformer(q, k, v, e, f, padded, 1.0).isfinite().all())
    assert bool(linformer(q, k, v, e, f, Layout.from_lengths([N], N + 2), 1.0).isfinite().all())


def test_padded_queries_leave_gradients_alone() -> None:
    layout, grads = Layout.from_lengths([6, 4]), []
    for filled in (0.0, float("nan")):
        random = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(2, 6, 2, 4, dtype=torch.float64, generator=random) for _ in range(3))
        project = torch.randn(1, 3, 6, dtype=torch.float64, generator=random)
        q[~layout.valid] = filled
        leaves = [x.requires_grad_() for x in (q, k, v)]
        linformer(*leaves, project, project, layout, 0.5).square().sum().backward()
        grads.append([x.grad for x in leaves])
    torch.testing.assert_close(*grads)
