"""Requests of attention: edits in their order, and masks and biases as tensors, computed once a plan."""

from __future__ import annotations

import torch

from qkv.core.layout import Layout
from qkv.nn.kernels.plan import Plan
from qkv.nn.kernels.request import Edits, Request
from qkv.nn.patterns.basic import Pattern, causal, full
from qkv.nn.positions.base import Widths
from qkv.nn.positions.bias import ALiBi


def request(pattern: Pattern, layout: Layout, bias: object = None, edits: tuple[Edits, ...] = ()) -> Request:
    q, k = torch.randn(1, 4, 2, 3), torch.randn(1, 4, 1, 3)
    known = {"scale": 1.0, "dropout": 0.0, "softcap": None, "return_lse": False, "plan": Plan()}
    return Request(q, k, k, pattern, layout, layout, bias, edits=edits, **known)  # type: ignore[arg-type]


def test_edits_are_made_in_order() -> None:
    edits = (Edits(scores=lambda x: x + 1), Edits(weights=lambda x: 0 * x), Edits(scores=lambda x: 10 * x))
    made, x = request(full(), Layout.full(4), edits=edits), torch.ones(1, 2, 4, 4)
    assert torch.equal(made.edited("scores", x), 20 * x) and torch.equal(made.edited("weights", x), 0 * x)
    assert (made.n_heads, made.n_kv_heads) == (2, 1)


def test_masks_are_lower_triangles_without_padded_keys() -> None:
    assert request(full(), Layout.full(4)).mask() is None
    padded = request(causal(), Layout.from_lengths([3], 4))
    mask = padded.mask()
    assert mask is not None and mask is padded.mask()
    wanted = torch.ones(4, 4, dtype=torch.bool).tril()
    wanted[:, 3] = False
    assert torch.equal(mask[..., :3, :].expand(1, 1, 3, 4)[0, 0], wanted[:3])


def test_a_bias_is_a_tensor_of_all_pairs() -> None:
    """ALiBi's: −slope · distance, with slopes 2^-4 and 2^-8 for two heads (Press et al. 2022)."""
    bias = ALiBi().module(Widths(6, 2, 3, None)).bias()
    dense = request(causal(), Layout.full(4), bias).dense_bias()
    assert dense is not None
    distance = (torch.arange(4)[:, None] - torch.arange(4)).abs()
    wanted = -torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * distance
    torch.testing.assert_close(dense.expand(1, 2, 4, 4)[0].tril(), wanted.tril())
