"""FlashAttention's algorithm: equal to the reference over many small tiles, forward and backward, dropout and all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.block_map import block_map
from qkv.nn.kernels.cpu import flash_attention, tiled
from qkv.nn.patterns.basic import Pattern, causal, prefix, sinks, window
from qkv.nn.positions.base import Bias, Position, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets

T, HEADS = 21, 4


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """4×8 tiles, so 21 tokens make many, the last ones short."""

    def grid(pattern: Pattern, q: Layout, k: Layout, *_: Any) -> flash_attention.TileGrid:
        return flash_attention.TileGrid(4, 8, block_map(pattern, q, k, 4, 8))

    monkeypatch.setattr(flash_attention, "tile_grid", grid)


def t5() -> Bias:
    return Bias(
        T5Buckets(buckets=8, max_distance=12), (torch.randn(8, HEADS, dtype=torch.float64, requires_grad=True),)
    )


def dense(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"pattern": causal()},
    "sinks": {"pattern": causal() & window(5) | causal() & sinks(2)},
    "outside": {"pattern": ~window(6)},
    "prefix": {
        "pattern": causal() | prefix(),
        "layout": Layout.full(T).with_roles((torch.arange(T) < 3).long()[None] * 4),
    },
    "left": {"pattern": causal(), "layout": Layout.from_lengths([9, T], side="left")},
    "mixed": {"pattern": causal(), "layout": Layout.from_mask(torch.rand(2, T) < 0.6)},
    "packed": {"pattern": causal(), "layout": Layout.packed([[10, 11], [3, 8, 2]], T)},
    "capped": {"softcap": 1.5, "pattern": causal()},
    "alibi": {"bias": ALiBi().module(Widths(32, HEADS, 8, None)).bias(), "pattern": causal()},
    "t5": {"bias": t5(), "layout": Layout.from_lengths([9, T], side="left")},
    "capped t5": {"bias": t5(), "softcap": 2.0},
    "dense": {"bias": dense(2, HEADS, T, T)},
    "dense rows": {"bias": dense(HEADS, T, 1)},
    "dense columns": {"bias": dense(2, 1, 1, T), "pattern": causal()},
    "late": {"pattern": causal(), "layout": Layout.full(T, start=40), "kv_layout": Layout.full(T, start=30)},
}


def gradients(backend: str, tensors: list[Tensor], options: dict[str, Any], weights: tuple[Tensor, Tensor]) -> Any:
    out, lse = attend(*tensors, return_lse=True, backend=backend, **options)
    bias = options.get("bias")
    trained = [t for t in ([bias] if isinstance(bias, Tensor) else bias.tensors if bias else []) if t.requires_grad]
    value = (out * weights[0]).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * weights[1]).sum()
    return out.detach(), lse.detach(), *torch.autograd.grad(value, [*tensors, *trained])


@pytest.mark.parametrize("n_kv_heads", [1, 4])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference_with_its_gradients(case: str, n_kv_heads: int) -> None:
    sizes = [(2, T, HEADS, 8), (2, T, n_kv_heads, 8), (2, T, n_kv_heads, 5)]
    tensors = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    weights = torch.randn(2, T, HEADS, 5, dtype=torch.float64), torch.randn(2, HEADS, T, dtype=torch.float64)
    results = [gradients(backend, tensors, CASES[case], weights) for backend in ("tiled", "reference")]
    torch.testing.assert_close(*results, atol=1e-6, rtol=1e-6)


class Gaussian(Position, kind="gaussian-test"):
    """A trainable bias from outside that defines no gradient: −distance² · rate of each head."""

    def bias(self, tensors: tuple[Tensor, ...], q: Any, k: Any) -> Tensor:
        return -tensors[0][:, None, None] * (q.position - k.position).square().to(tensors[0].dtype).unsqueeze(-3)


def test_a_trained_bias_without_its_own_gradient() -> None:
    options = {"bias": Bias(Gaussian(), (torch.rand(HEADS, dtype=torch.float64, requires_grad=True),))}
    tensors = [torch.randn(2, T, HEADS, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, T, HEADS, 8, dtype=torch.float64), torch.zeros(2, HEADS, T, dtype=torch.float64)
    results = [gradients(backend, tensors, options, weights) for backend in ("tiled", "reference")]
    torch.testing.assert_close(*results)


def test_dropout_has_the_gradient_of_what_it_computed() -> None:
    """Central differences with the seed fixed: backward draws the very same mask."""
    tensors = [torch.randn(1, 11, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weight = torch.randn(1, 11, 2, 4, dtype=torch.float64)

    def value() -> Tensor:
        torch.manual_seed(7)
        return (attend(*tensors, pattern=causal(), dropout=0.4, backend="tiled") * weight).sum()

    grads = torch.autograd.grad(value(), tensors)
    plain = torch.autograd.grad((attend(*tensors, pattern=causal()) * weight).sum(), tensors)
    for x, grad, without in zip(tensors, grads, plain, strict=True):
        assert not torch.allclose(grad, without, atol=1e-3), "dropout left no trace"
        for index in [(0, 0, 0, 1), (0, 5, 1, 2), (0, 10, 0, 3), (0, 8, 1, 0)]:
            differences = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    x[index] += step
                    differences.append(value().item())
                    x[index] -= step
            assert grad[index].item() == pytest.approx((differences[0] - differences[1]) / 2e-5, abs=1e-7, rel=1e-5)


def test_dropout_follows_the_seed_and_differs_from_call_to_call() -> None:
    tensors = [torch.randn(1, T, 2, 4) for _ in range(3)]
    first, second = (attend(*tensors, dropout=0.5, backend="tiled") for _ in range(2))
    torch.manual_seed(3)
    one = attend(*tensors, dropout=0.5, backend="tiled")
    torch.manual_seed(3)
    assert torch.equal(one, attend(*tensors, dropout=0.5, backend="tiled"))
    assert not torch.equal(first, second)


def test_nan_reaches_the_queries_that_see_it_and_no_others() -> None:
    q, k, v = (torch.randn(2, T, 2, 4) for _ in range(3))
    k[0, 9, 1] = float("inf")
    v[1, 17, 0] = float("nan")
    made, expected = (attend(q, k, v, pattern=causal() & window(6), backend=b) for b in ("tiled", "reference"))
    torch.testing.assert_close(made, expected, equal_nan=True)
    assert made.isnan().any() and made[0, 15:].isfinite().all()


def test_blocks_that_a_pattern_rules_out_are_never_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[tuple[int, int, bool]] = []
    scores = flash_attention.TiledProblem.scores

    def spy(self: Any, q: Tensor, tile: Any) -> Any:
        touched.append((tile.a, tile.c, tile.sure))
        return scores(self, q, tile)

    monkeypatch.setattr(flash_attention.TiledProblem, "scores", spy)
    n = 64
    attend(*(torch.randn(1, n, 1, 4) for _ in range(3)), pattern=causal() & window(8), backend="tiled")
    for a, c, _ in touched:
        assert c <= a + 3 and c + 7 > a - 8, "a tile outside the band"
    assert len(touched) == len(set(touched)) and len(touched) < (n // 4) * (n // 8) / 3
    assert {a for a, _, _ in touched} == set(range(0, n, 4))


def test_tiles_that_are_surely_allowed_need_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Asked(Pattern, kind="asked-test"):
        def allowed(self, q: Any, k: Any, head: Tensor | None = None) -> Tensor:
            asked.append(1)
            return k.position <= q.position

        def block(self, q: Any, k: Any) -> Any:
            return causal().block(q, k)

    tensors = [torch.randn(1, 32, 1, 4) for _ in range(3)]
    out = attend(*tensors, pattern=Asked(), backend="tiled")
    torch.testing.assert_close(out, attend(*tensors, pattern=causal(), backend="reference"))
    assert len(asked) == 8, "only the tiles on the diagonal ask for pairs, one a row block"


def test_half_precision_is_summed_in_fp32() -> None:
    q, k, v = (torch.randn(1, 512, 2, 16) for _ in range(3))
    exact = attend(q.double(), k.double(), v.double(), backend="reference")
    half = [x.bfloat16() for x in (q, k, v)]
    made, plain = attend(*half, backend="tiled"), attend(*half, backend="reference")
    assert made.dtype == torch.bfloat16
    assert (made - exact).norm() <= 1.2 * (plain - exact).norm()


def test_density_is_the_share_of_blocks_that_count() -> None:
    from qkv.nn.attention import tap

    q = torch.zeros(1, 1024, 1, 4)
    for pattern, expected in [(causal(), (16 * 17 / 2) / 256), (causal() & window(1), 16 / 256), (window(2000), 1.0)]:
        with tap.record_attention() as requests:
            attend(q, q, q, pattern=pattern, backend="sdpa")
        assert tiled.density(requests[0]) == pytest.approx(expected)


def test_second_derivatives_with_dropout_are_refused() -> None:
    q = torch.randn(2, 64, 2, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(attend(q, q, q, dropout=0.1).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference'"):
        torch.autograd.grad(grad.sum(), q)
    (grad,) = torch.autograd.grad(
        attend(q, q, q, dropout=0.1, backend="reference").square().sum(), q, create_graph=True
    )
    assert torch.autograd.grad(grad.sum(), q)[0].isfinite().all()
