"""Dispatch sorts tokens by expert, and combine brings their outputs back, with gradients."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.nn.layers.moe_dispatch import combine, dispatch, spread


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_dispatch_sorts_and_combine_brings_back(data: st.DataObject) -> None:
    n, k, n_experts = (data.draw(st.integers(1, top)) for top in (9, 3, 5))
    experts = torch.tensor(
        data.draw(st.lists(st.lists(st.integers(0, n_experts - 1), min_size=k, max_size=k), min_size=n, max_size=n))
    )
    real = torch.tensor(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    capacity = data.draw(st.sampled_from([None, 0.5, 1.0, 2.0]))
    plan = dispatch(experts, n_experts, real, capacity)
    served = experts.T.flatten()[plan.order[: plan.ends[-1]]]
    assert served.tolist() == sorted(served.tolist())
    limit = math.inf if capacity is None else math.ceil(capacity * int(real.sum()) * k / n_experts)
    for e in range(n_experts):
        mine = [c * n + t for c in range(k) for t in range(n) if experts[t, c] == e and real[t]]
        start = int(plan.ends[e - 1]) if e else 0
        assert plan.order[start : plan.ends[e]].tolist() == mine[: min(limit, len(mine))]  # type: ignore[misc]
    x, gates = torch.randn(n, 2, dtype=torch.float64), torch.rand(n, k, dtype=torch.float64)
    torch.testing.assert_close(combine(spread(x, plan), gates, plan), x * gates.sum(1, keepdim=True))


def test_dispatch_and_combine_have_the_gradients_of_the_plain_way() -> None:
    experts = torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1]])
    plan = dispatch(experts, 3, torch.tensor([True, True, False, True]))
    x, gates = torch.randn(4, 3, dtype=torch.float64), torch.rand(4, 2, dtype=torch.float64)
    inputs = (x.requires_grad_(), gates.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, g: combine(spread(x, plan).sin(), g, plan), inputs)
