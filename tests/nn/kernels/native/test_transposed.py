"""Copies of transposed matrices into row-major order."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.kernels.native import transposed

SQUARE = torch.zeros(256, 256)
needs_kernel = pytest.mark.skipif(
    not transposed.serves(SQUARE, torch.zeros(256, 256).T), reason="needs a C++ compiler or prebuilt kernels"
)


@needs_kernel
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    more=st.integers(0, 20),
    dtype=st.sampled_from([torch.float32, torch.int32, torch.bfloat16, torch.float16]),
)
def test_a_copy_is_the_transposed_matrix(rows: int, columns: int, more: int, dtype: torch.dtype) -> None:
    stored = torch.randn(columns, rows + more).mul(100).to(dtype)
    matrix = stored[:, more:].T
    into = torch.full((rows + 1, columns), 7, dtype=dtype)
    assert transposed.copy(into[:rows], matrix)
    assert torch.equal(into[:rows], matrix) and (into[rows] == 7).all()
    if dtype.is_floating_point:
        number = (float("nan"), float("inf"), -float("inf"), torch.finfo(dtype).max)[(rows + more) % 4]
        matrix[(7 * columns) % rows, (5 * rows) % columns] = number
        assert transposed.copy(into[:rows], matrix) == bool(matrix.isfinite().all())


@needs_kernel
def test_only_such_copies_are_served() -> None:
    stored = torch.zeros(256, 256)
    assert transposed.serves(SQUARE, stored.T) and transposed.serves(SQUARE[:, :].bfloat16(), stored.bfloat16().T)
    assert not transposed.serves(SQUARE, stored)  # rows are contiguous
    assert not transposed.serves(SQUARE, stored.bfloat16().T)
    assert not transposed.serves(SQUARE.double(), stored.double().T)
    assert not transposed.serves(SQUARE.T, stored.T)
    assert not transposed.serves(SQUARE, stored[:128].T)
    assert not transposed.serves(torch.zeros(4, 4), torch.zeros(4, 4).T)  # small
    assert not transposed.serves(torch.zeros(2, 256, 256), torch.zeros(2, 256, 256).mT)
    assert not transposed.serves(SQUARE, torch.zeros(1, 256).T.expand(256, 256))  # the same column again and again


def test_without_a_kernel_nothing_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposed, "library", lambda name: None)
    assert not transposed.serves(SQUARE, torch.zeros(256, 256).T)
