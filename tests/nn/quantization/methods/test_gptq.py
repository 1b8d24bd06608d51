"""GPTQ and AWQ: outputs are nearer than by rounding, by an independent computation from the inputs themselves."""

from __future__ import annotations

import pytest
import torch

from qkv.nn.quantization.formats import Packed, format_of
from qkv.nn.quantization.methods import awq
from qkv.nn.quantization.methods.gptq import gptq
from qkv.nn.quantization.methods.rtn import rtn

GROUP = {"int8": 64, "int4": 32, "nf4": 32, "fp8": 64, "mxfp4": 32}


def layer(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix, and correlated inputs of unequal size, a few of them large."""
    generator = torch.Generator().manual_seed(seed)
    w = 0.05 * torch.randn(24, 64, generator=generator)
    mixing = torch.linalg.qr(torch.randn(64, 64, generator=generator))[0]
    x = torch.randn(600, 64, generator=generator) * torch.logspace(-1, 1, 64) @ mixing
    x[:, ::16] *= 8
    return w, x


def error(x: torch.Tensor, w: torch.Tensor, packed: Packed) -> float:
    return float((x @ (packed.dense() - w).T).norm() / (x @ w.T).norm())


@pytest.mark.parametrize("name", GROUP)
@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_is_better_than_rounding(name: str, symmetric: bool) -> None:
    format, (w, x) = format_of(name), layer()
    if not symmetric and not format.has_zeros:
        pytest.skip("the format has no zero points")
    second = x.T @ x / len(x)
    rounded = error(x, w, rtn(w, format, GROUP[name], symmetric))
    assert error(x, w, gptq(w, format, GROUP[name], symmetric, second=second)) < 0.8 * rounded
    assert error(x, w, awq.clipped(w, format, GROUP[name], symmetric, second=second)) <= rounded * (1 + 1e-6)


def test_few_tokens_make_gptq_worse_than_rounding_for_others() -> None:
    """Why experts with fewer than two tokens for each input are rounded: inputs of moderate correlation."""
    generator, format = torch.Generator().manual_seed(1), format_of("int4")
    w = 0.05 * torch.randn(48, 64, generator=generator)
    mixing = torch.logspace(-0.35, 0.35, 64)[:, None] * torch.linalg.qr(torch.randn(64, 64, generator=generator))[0]
    x, others = (torch.randn(n, 64, generator=generator) @ mixing for n in (256, 4000))
    rounded = error(others, w, rtn(w, format, 32))
    found = {n: error(others, w, gptq(w, format, 32, second=x[:n].T @ x[:n] / n)) for n in (32, 64, 128, 256)}
    assert found[32] > rounded and found[64] > rounded
    assert found[256] < found[128] < rounded


def test_gptq_of_two_columns_by_hand() -> None:
    """With H = [[2, 1], [1, 1]] the first column is rounded first; its error 0.3 moves the second by 0.3 · H₁₂ / H₂₂."""
    w, second = torch.tensor([[0.3, 0.25]]), torch.tensor([[2.0, 1.0], [1.0, 1.0]])
    fixed = torch.ones(1, 1), None

    class Ones(type(format_of("int8"))):  # type: ignore[misc]
        def fit(self, *_: object) -> tuple[torch.Tensor, None]:
            return fixed

    packed = gptq(w, Ones(), 2, second=second)
    assert packed.codes.tolist() == [[0, 1]]  # 0.3 → 0; 0.25 + 0.3, but for the damping → 1
    assert rtn(w, Ones(), 2).codes.tolist() == [[0, 0]]


def test_uncorrelated_inputs_leave_rounding_as_it_is() -> None:
    w, _ = layer()
    format = format_of("int8")
    packed = gptq(w, format, 64, second=torch.eye(64))
    nearest = format.encode(w, packed.scales, None)
    assert torch.equal(packed.codes, nearest)


def test_inputs_that_are_always_zero_do_not_count() -> None:
    w, x = layer()
    x[:, 5] = 0
    packed = gptq(w, format_of("int4"), 32, second=x.T @ x / len(x))
    assert bool(packed.dense().isfinite().all())


def test_inputs_that_are_not_finite() -> None:
    w, _ = layer()
    with pytest.raises(ValueError, match="not finite"):
        gptq(w, format_of("int4"), 32, second=torch.full((64, 64), float("nan")))
