"""Requests in any memory, with any scale and with NaN that is hidden: every backend gives what float64 gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.nn.attention.attend import attend
from qkv.nn.kernels.cpu import block_sparse
from qkv.nn.patterns.basic import Causal, Full, Pattern, causal, window

BACKENDS = ["auto", "reference", "sdpa", "tiled", "decode", pytest.param("flex", marks=pytest.mark.slow)]
CLOSE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def spread(x: Tensor) -> Tensor:
    """Every second number of memory that is twice as wide."""
    return torch.full((*x.shape[:-1], 2 * x.shape[-1]), 9.0, dtype=x.dtype)[..., ::2].copy_(x)


def turned(x: Tensor) -> Tensor:
    return x.transpose(2, 3).contiguous().transpose(2, 3)


def shifted(x: Tensor) -> Tensor:
    """At an address that is not a multiple of a vector's size."""
    return torch.empty(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape).copy_(x)


def inside(x: Tensor) -> Tensor:
    b, t, h, d = x.shape
    return torch.full((b, t + 5, h + 3, d + 7), 9.0, dtype=x.dtype)[:, 2 : t + 2, 1 : h + 1, 3 : d + 3].copy_(x)


def heads_first(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "spread": spread,
    "turned": turned,
    "shifted": shifted,
    "inside": inside,
    "heads first": heads_first,
    "one row": lambda x: x[:1].expand(x.shape),
    "one token": lambda x: x[:, :1].expand(x.shape),
    "one head": lambda x: x[:, :, :1].expand(x.shape),
    "one number": lambda x: x[..., :1].expand(x.shape),
}


def drawn(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def in_float64(q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor, softcap: float | None = None) -> Tensor:
    """The equation, from numbers that are all finite."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.double(), *(x.double().repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * scale
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    return torch.einsum("bhts,bshe->bthe", scores.masked_fill(~seen, float("-inf")).softmax(-1), v)


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative L2 distance; that of small numbers by their count."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm().clamp(min=wanted.numel() ** 0.5))


def lower(t: int, s: int) -> Tensor:
    return torch.ones(t, s, dtype=torch.bool).tril(s - t)


@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)], ids=["full", "grouped"])
def test_memory_and_scale_are_any(heads: tuple[int, int], backend: str, dtype: torch.dtype) -> None:
    t = 3 if backend == "decode" else 20
    if backend == "decode" and dtype not in (torch.float32, torch.bfloat16):
        pytest.skip("decode is for fp32 and bf16")
    shapes = [(2, t, heads[0], 16), *[(2, t, heads[1], 16)] * 2]
    for name, view in VIEWS.items():
        q, k, v = (view(drawn(*shape, dtype=dtype, seed=i)) for i, shape in enumerate(shapes))
        for scale in (0.3, 0.0, -0.3):
            for pattern, seen in ((Full(), torch.ones(t, t, dtype=torch.bool)), (Causal(), lower(t, t))):
                found = attend(q, k, v, scale=scale, pattern=pattern, backend=backend)
                error = distance(found, in_float64(q, k, v, scale, seen))
                assert error < CLOSE[dtype], (name, scale, pattern, error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("favored", [True, False])
@pytest.mark.parametrize("pattern", [Full(), Causal(), causal() & window(9)], ids=str)
def test_the_kernels_of_tiled_read_any_memory(
    pattern: Pattern, favored: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_sparse, "is_favored", lambda q: favored)
    monkeypatch.setattr(block_sparse, "MIN_SCORES", 1)
    t = 80
    seen = torch.ones(t, t, dtype=torch.bool) if pattern == Full() else lower(t, t)
    seen = seen & ~lower(t, t).tril(-9) if pattern == causal() & window(9) else seen
    for name, view in VIEWS.items():
        q, k, v = (view(drawn(2, t, 2, 32, dtype=dtype, seed=i)).detach().requires_grad_() for i in range(3))
        for scale in (0.3, -0.3):
            found = attend(q, k, v, scale=scale, pattern=pattern, backend="tiled")
            wanted = in_float64(q, k, v, scale, seen)
            assert distance(found, wanted) < CLOSE[dtype], (name, scale)
            weight = drawn(*found.shape, dtype=dtype, seed=3)
            mine, theirs = (torch.autograd.grad((x * weight).sum(), [q, k, v]) for x in (found, wanted))
            for a, b in zip(mine, theirs, strict=True):
                assert distance(a, b) < 3 * CLOSE[dtype], (name, scale)


NAN = {"nan": float("nan"), "inf": float("inf")}


@pytest.mark.parametrize("where", ["k", "v"])
@pytest.mark.parametrize("what", NAN)
@pytest.mark.parametrize("backend", ["auto", "reference", "sdpa", "tiled", "capped"])
@pytest.mark.parametrize("pattern", [Causal(), causal() & window(5)], ids=str)
@pytest.mark.parametrize("t", [18, 100])
def test_nan_in_a_hidden_key_reaches_neither_results_nor_gradients(
    t: int, pattern: Pattern, backend: str, what: str, where: str
) -> None:
    bad, softcap = t // 2, 5.0 if backend == "capped" else None
    tensors = [drawn(2, t, n, 16, dtype=torch.float32, seed=i) for i, n in enumerate((4, 2, 2))]
    tensors["qkv".index(where)][1, bad, 1] = NAN[what]
    q, k, v = (x.requires_grad_() for x in tensors)
    seen = lower(t, t) if pattern == Causal() else lower(t, t) & ~lower(t, t).tril(-5)
    found = attend(q, k, v, pattern=pattern, backend=backend, softcap=softcap)
    clean = [x.detach().nan_to_num(0.0, 0.0, 0.0).requires_grad_() for x in (q, k, v)]
    wanted = in_float64(*clean, 0.25, seen, softcap)
    untouched = torch.ones(2, t, 4, dtype=torch.bool)
    untouched[1, :, 2:] = ~seen[:, bad, None]
    assert distance(found[untouched], wanted[untouched]) < 1e-5
    assert found[~untouched].isnan().all()
    weight = drawn(*found.shape, dtype=torch.float32, seed=3)
    mine = torch.autograd.grad((found * weight)[untouched].sum(), [q, k, v])
    theirs = torch.autograd.grad((wanted * weight)[untouched].sum(), clean)
    for a, b in zip(mine, theirs, strict=True):
        assert distance(a, b) < 1e-5


def test_a_nan_that_all_queries_see_is_one_of_all() -> None:
    q, k, v = (drawn(1, 6, 2, 8, dtype=torch.float32, seed=i) for i in range(3))
    k[0, 0] = float("nan")
    for backend in ("auto", "sdpa", "tiled", "reference"):
        assert attend(q, k, v, pattern=Causal(), backend=backend).isnan().all()


@pytest.mark.parametrize("backend", ["auto", "sdpa", "tiled", "reference", "decode"])
@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)], ids=str)
def test_empty_sides_give_empty_or_zero(sizes: tuple[int, int, int], backend: str) -> None:
    b, t, s = sizes
    q, k, v = (torch.randn(b, n, 2, 8) for n in (t, s, s))
    options: dict[str, Any] = {"backend": backend}
    try:
        found = attend(q, k, v, **options)
    except ValueError:
        assert backend == "decode"  # it refuses
    else:
        assert found.shape == (b, t, 2, 8) and (found == 0).all()


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -float("inf")])
def test_a_scale_is_finite(scale: float) -> None:
    q = torch.randn(1, 3, 2, 8)
    with pytest.raises(ValueError, match=f"scale must be finite, not {scale}"):
        attend(q, q, q, scale=scale)
