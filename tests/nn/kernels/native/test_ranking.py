"""Normalizers and maxima of chunks of logits, by C++."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qkv.nn.kernels.native import compiler
from qkv.nn.kernels.native.ranking import rank, serves

pytestmark = pytest.mark.skipif(compiler.library("decoding") is None, reason="there is no C++ compiler here")


@given(
    rows=st.integers(1, 5), vocab=st.integers(1, 300), chunk=st.integers(1, 70), seed=st.integers(0, 99), data=st.data()
)
def test_normalizers_and_best_tokens_are_those_of_pytorch(
    rows: int, vocab: int, chunk: int, seed: int, data: st.DataObject
) -> None:
    logits = torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 20
    forbidden = data.draw(st.lists(st.integers(-2, vocab + 2), max_size=5))
    normalizers, best = rank(logits, chunk, forbidden)
    torch.testing.assert_close(normalizers, logits.logsumexp(1))
    allowed = logits.clone()
    allowed[:, [token for token in forbidden if 0 <= token < vocab]] = -math.inf
    assert torch.equal(best, torch.stack([part.amax(1) for part in allowed.split(chunk, 1)], 1))


def test_infinite_and_lost_logits() -> None:
    logits = torch.zeros(4, 40)
    logits[0, ::2] = -math.inf
    logits[1, 39] = math.nan
    logits[2, 3] = math.nan
    normalizers, best = rank(logits, 16)
    assert normalizers[0].item() == pytest.approx(math.log(20)) and normalizers[3].item() == pytest.approx(math.log(40))
    assert normalizers[1].isnan() and normalizers[2].isnan()
    assert torch.equal(best[0], torch.zeros(3))


def test_only_contiguous_fp32_without_gradients_is_served() -> None:
    logits = torch.zeros(2, 8)
    assert serves(logits)
    assert not serves(logits.double()) and not serves(logits[:, ::2]) and not serves(logits[:0])
    assert not serves(logits.clone().requires_grad_())
