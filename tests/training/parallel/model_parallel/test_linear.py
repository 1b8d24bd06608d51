"""Linear attention with tokens on several ranks: sums of one rank, and which layers have sums that can be added up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.core.ranks import Ranks
from qkv.nn.attention.feature_maps import Features
from qkv.nn.attention.linear import linear_attention as attend_here
from qkv.training.parallel.model_parallel.axis import TokenAxis
from qkv.training.parallel.model_parallel.linear import linear_attention, passes_sums

pytestmark = pytest.mark.xdist_group("ranks")
T = 12
LAYOUT = Layout.from_mask(torch.tensor([[1] * T, [1] * (T - 3) + [0] * 3]))


def numbers() -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.rand(3, 2, T, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return q, k, v


def attended(ranks: Ranks, causal: bool) -> Tensor:
    axis = TokenAxis(LAYOUT, ranks, "zigzag")
    q, k, v = (axis.own(x.flatten(2)).unflatten(2, x.shape[2:]) for x in numbers())
    out = linear_attention(axis, Features(q, None), Features(k, None), v, axis.layout, causal)
    return axis.gather(out.flatten(2))


@pytest.mark.parametrize("causal", [False, True])
def test_ranks_attend_as_one(two: Any, causal: bool) -> None:
    q, k, v = numbers()
    expected = attend_here(Features(q, None), Features(k, None), v, LAYOUT, causal).flatten(2)
    for found in two.run(attended, causal):
        torch.testing.assert_close(found[LAYOUT.valid], expected[LAYOUT.valid], rtol=1e-9, atol=1e-9)


def test_sums_are_added_up_without_logs_and_documents() -> None:
    def layer(**options: Any) -> Any:
        spec = qkv.preset("gpt2", n_layers=1, d_model=16, n_heads=2, vocab_size=9, max_positions=16)
        kind = {"n_heads": 2, "pattern": "causal", **options}
        return qkv.build(spec.replace({"decoder.blocks.0.attention": kind})).decoder.blocks[0].attention  # type: ignore[union-attr]

    packed = Layout(torch.tensor([[0, 1, 0, 1]]), segments=torch.tensor([[0, 0, 1, 1]]), one_segment=False)
    linear = layer(kind="linear-attention")
    assert passes_sums(linear, Layout.full(4)) and not passes_sums(linear, packed)
    assert not passes_sums(layer(kind="performer", features={"kind": "favor"}), Layout.full(4))
    assert not passes_sums(layer(kind="attention"), Layout.full(4))
