"""Integer formats: codes and zero points, in the form that kernels read."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.quantization.formats import format_of
from qkv.nn.quantization.methods.rtn import rtn


def matrix(seed: int, rows: int = 6, columns: int = 64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@given(seed=st.integers(0, 10**6), bits=st.sampled_from([4, 8]))
def test_zero_points_reach_from_the_smallest_to_the_largest_weight(seed: int, bits: int) -> None:
    w = matrix(seed).abs() + 0.5  # one-sided, so symmetric codes waste half their range
    format = format_of(f"int{bits}")
    packed = rtn(w, format, 32, symmetric=False)
    assert packed.zeros is not None and packed.zeros.dtype == torch.int8
    step = w.unflatten(1, (-1, 32)).amax(-1, keepdim=True) / (2**bits - 1)
    assert bool(((packed.dense() - w).unflatten(1, (-1, 32)).abs() <= 0.501 * step + 1e-6).all())
    symmetric = rtn(w, format, 32)
    assert (packed.dense() - w).norm() < (symmetric.dense() - w).norm()


def test_the_form_that_kernels_read() -> None:
    """int4: the lower half of a byte is the even column, and q is stored as q + 8."""
    w = torch.tensor([[7.5, -7.5, 1.0, 0.0]])  # the scale is 1
    packed = rtn(w, format_of("int4"), 4)
    assert packed.codes.tolist() == [[15 | 0 << 4, 9 | 8 << 4]]
    assert packed.scales.tolist() == [[1.0]]
    eight = rtn(torch.tensor([[127.5, -3.0]]), format_of("int8"), 2)
    assert eight.codes.dtype == torch.int8 and eight.codes.tolist() == [[127, -3]]
