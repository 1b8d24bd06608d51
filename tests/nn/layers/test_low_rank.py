"""Products of low rank: the factors are the best ones, and a layer with factors is a layer like any other."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from qkv.nn.attention.multi_head import Attention
from qkv.nn.layers.feedforward import FeedForward
from qkv.nn.layers.linear import Linear
from qkv.nn.layers.lora import LoRA, adapt
from qkv.nn.layers.low_rank import LowRankLinear, damped, factors, linear, matrix_size, plain


def layer(d_in: int = 6, d_out: int = 9, rank: int = 2) -> LowRankLinear:
    made = LowRankLinear(d_in, d_out, rank)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


def matrix(d_out: int = 12, d_in: int = 20) -> torch.Tensor:
    return torch.randn(d_out, d_in, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def inputs(n: int = 500, d: int = 20) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    mixed = torch.randn(d, d, generator=generator, dtype=torch.float64) * torch.logspace(0, -3, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixed.T


@pytest.mark.parametrize("rank", [1, 5, 11, 12])
def test_the_error_is_the_dropped_singular_values(rank: int) -> None:
    w = matrix()
    u, v = factors(w, rank)
    assert u.shape == (12, rank) and v.shape == (rank, 20)
    dropped = torch.linalg.svdvals(w)[rank:]
    assert_close((w - u @ v).square().sum(), dropped.square().sum(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 5, 11, 12])
def test_with_a_covariance_the_error_is_of_outputs(rank: int) -> None:
    w, x = matrix(), inputs()
    covariance = x.T @ x / len(x)
    u, v = factors(w, rank, covariance)
    root = torch.linalg.cholesky(damped(covariance))  # the singular values of W R are the same for every R Rᵀ = C
    dropped = torch.linalg.svdvals(w @ root)[rank:]
    assert_close(((w - u @ v) @ root).square().sum(), dropped.square().sum(), rtol=1e-9, atol=1e-12)
    if rank < 12:

        def error(product: torch.Tensor) -> torch.Tensor:
            return (x @ (w - product).T).square().sum()

        a, b = factors(w, rank)
        assert error(u @ v) < 0.9 * error(a @ b)


def test_inputs_that_are_never_seen_do_no_harm() -> None:
    w, x = matrix(), inputs()
    x[:, 5:] = 0.0
    u, v = factors(w, 12, x.T @ x / len(x))
    assert_close(u @ v, w, rtol=1e-6, atol=1e-6)
    assert all(f.isfinite().all() for f in factors(w, 3, torch.zeros(20, 20)))


def test_a_rank_above_that_of_the_matrix() -> None:
    with pytest.raises(ValueError, match="a matrix of 12 × 20 has a rank of at most 12, not 13"):
        factors(matrix(), 13)


def test_a_layer_computes_what_its_full_matrix_does() -> None:
    low, x = layer(), torch.randn(4, 3, 6)
    full = low.plain()
    assert type(full) is Linear and (full.in_features, full.out_features) == (6, 9)
    assert_close(full(x), low(x))
    assert sum(p.numel() for p in low.parameters()) == matrix_size(6, 9, 2) + 9
    assert plain(full) is full
    adapted = adapt(torch.nn.ModuleDict({"layer": layer()}), LoRA(layers=("layer.expand",), rank=1))
    with torch.no_grad():
        adapted["layer"].expand.lora_b.fill_(0.5)
    assert_close(adapted["layer"].plain()(x), adapted["layer"](x))
    assert not torch.allclose(adapted["layer"](x), low(x))


def test_specs_with_ranks() -> None:
    assert isinstance(linear(4, 4, True, None), Linear)
    attention = Attention(n_heads=2, low_rank={"q": 3, "out": 2})
    module = attention.module(8)
    assert (module.q.rank, module.out.rank) == (3, 2) and type(module.k) is Linear
    feedforward = FeedForward(d_ff=16, gated=True, low_rank={"gate": 1, "down": 2})
    for spec in (attention, feedforward):
        assert spec.cost(8).parameters == sum(p.numel() for p in spec.module(8).parameters())
        assert type(spec).from_json(spec.to_json()) == spec
    saved = 8 * 16 * 2 - matrix_size(8, 16, 1) - matrix_size(16, 8, 2)
    assert FeedForward(d_ff=16, gated=True).cost(8, 5).flops - feedforward.cost(8, 5).flops == 2 * 5 * saved
    with pytest.raises(ValueError, match=r"low_rank\.q: input should be greater than 0, not 0"):
        Attention(n_heads=2, low_rank={"q": 0})
