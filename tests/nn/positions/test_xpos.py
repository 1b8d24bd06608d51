"""xPos against its definition in complex numbers, and decoding with it."""

from __future__ import annotations

import pytest
import torch

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention.lsh import LSHAttention
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import Widths
from qkv.nn.positions.xpos import XPos


@pytest.mark.parametrize("pairs", ["half", "interleaved"])
def test_scores_are_the_papers(pairs: str) -> None:
    """q_m · k_n = Σ_i Re(q_i conj(k_i) ζ_i^((m−n)/s) e^(i(m−n)θ_i)) (Sun et al. 2022, §3.1)."""
    d, s = 12, 32.0
    module = XPos(pairs=pairs, scale_base=s, base=100.0).module(Widths(24, 2, d, None))  # type: ignore[arg-type]
    q, k = torch.randn(2, 1, 9, 2, d, dtype=torch.float64)
    tables = module.tables(Layout.full(9, start=3))
    assert tables is not None
    found = torch.einsum("bthd,bshd->hts", module.rotate_queries(q, tables), module.rotate_keys(k, tables))

    def pairs_of(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1) if pairs == "half" else (x[..., 0::2], x[..., 1::2])
        return torch.complex(a, b)[0]

    i = torch.arange(d // 2, dtype=torch.float64)
    zeta, theta = (2 * i / d + 0.4) / 1.4, 100.0 ** (-2 * i / d)
    back = (torch.arange(9)[:, None] - torch.arange(9))[..., None].double()
    each = zeta ** (back / s) * torch.polar(torch.ones(9, 9, d // 2, dtype=torch.float64), back * theta)
    wanted = torch.einsum("thi,shi,tsi->hts", pairs_of(q), pairs_of(k).conj(), each).real
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_vectors_that_are_queries_and_keys_at_once_are_refused() -> None:
    spec = qkv.preset("gpt", vocab_size=11, d_model=16, n_layers=1, n_heads=2, max_positions=32)
    lsh = LSHAttention(n_heads=2, pattern=causal())
    with pytest.raises(
        ValueError, match="rotates queries and keys differently, and in lsh-attention they are the same"
    ):
        qkv.build(spec.replace({"decoder.position": XPos(), "decoder.blocks.0.attention": lsh}))
