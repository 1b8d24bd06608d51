"""What a pass makes once; and the masks that the host can do without."""

from __future__ import annotations

from dataclasses import replace

import torch

from qkv.core.layout import Layout
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.plan import Plan, allowed_mask, host_interval, is_aligned_causal
from qkv.nn.patterns.basic import Causal, Pattern, causal, full, sinks, window


class Counted(Pattern, kind="counted-test"):
    """Causal, and it counts how often a mask is made of it."""

    def allowed(self, q, k, head=None):  # type: ignore[no-untyped-def]
        CALLS.append(1)
        return k.position <= q.position


CALLS: list[int] = []


def test_layers_of_a_pass_share_their_mask() -> None:
    CALLS.clear()
    plan, layout = Plan(), Layout.full(5)
    for _ in range(3):
        q = torch.randn(1, 5, 2, 4)
        attend(q, q, q, pattern=Counted(), layout=layout, plan=plan, backend="reference")
    assert len(CALLS) == 1
    attend(q, q, q, pattern=Counted(), layout=Layout.full(5, start=1), plan=plan, backend="reference")
    assert len(CALLS) == 2, "another layout, another mask"


def test_one_plan_keeps_patterns_apart() -> None:
    plan, layout = Plan(), Layout.full(6)
    a = plan.mask(causal() & window(2), layout, layout, 2)
    b = plan.mask(causal() & window(3), layout, layout, 2)
    assert a is not None and b is not None and not torch.equal(a, b)
    assert plan.mask(causal() & window(2), layout, layout, 2) is a


def test_masks_are_the_pattern_and_stay_broadcastable() -> None:
    layout = Layout.from_lengths([2, 4])
    made = allowed_mask(causal(), layout, layout, n_heads=8)
    assert made is not None and made.shape == (2, 1, 4, 4)
    expected = causal().mask(4) & layout.valid[:, None, :]
    assert torch.equal(made[:, 0][layout.valid], expected[layout.valid]), "padded queries are the caller's business"
    padded_only = allowed_mask(full(), layout, layout, n_heads=8)
    assert padded_only is not None and padded_only.shape == (2, 1, 1, 4)


def test_no_mask_where_the_host_knows_that_all_is_allowed() -> None:
    keys = Layout.full(9)
    assert allowed_mask(causal() & window(100), Layout.full(1, start=8), keys, 2) is None
    assert allowed_mask(full(), keys, keys, 2) is None
    near = allowed_mask(causal() & window(4), Layout.full(1, start=8), keys, 2)
    assert near is not None and near[0, 0, 0].int().tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_patterns_that_differ_by_head() -> None:
    class Strides(Pattern, kind="strides-test"):
        @property
        def per_head(self) -> bool:
            return True

        def allowed(self, q, k, head=None):  # type: ignore[no-untyped-def]
            return (q.position - k.position) % (head + 1) == 0

    layout = Layout.full(5)
    made = allowed_mask(Strides() & causal(), layout, layout, n_heads=3)
    distance = torch.arange(5)[:, None] - torch.arange(5)
    expected = torch.stack([(distance >= 0) & (distance % (h + 1) == 0) for h in range(3)])
    assert made is not None and torch.equal(made.expand(1, 3, 5, 5)[0], expected)
    q = torch.randn(1, 5, 3, 4)
    outs = [attend(q, q, q, pattern=Strides() & causal(), backend=b) for b in ("reference", "sdpa", "tiled")]
    torch.testing.assert_close(outs[0], outs[1])
    torch.testing.assert_close(outs[0], outs[2])
    with tap.record_attention() as requests:
        attend(q, q, q, pattern=Strides() | sinks(1))
    assert (tap.weights(requests[0], heads=[2])[0, 0, 4] > 0).tolist() == [True, True, False, False, True]


def test_host_extent_is_only_what_is_known() -> None:
    assert host_interval(Layout.full(4, start=3))[:2] == (3, 6)  # type: ignore[index]
    assert host_interval(Layout.from_lengths([2, 4]))[:2] == (0, 3)  # type: ignore[index]
    assert host_interval(Layout.from_lengths([2, 4], side="left")) is None
    assert host_interval(Layout.packed([[2, 2]])) is None


def test_the_triangle_is_not_taken_for_keys_of_another_segment() -> None:
    queries, keys = Layout.full(4), replace(Layout.full(4), segments=torch.ones(1, 4, dtype=torch.int64))
    assert is_aligned_causal((Causal(),), queries, Layout.full(4))
    assert not is_aligned_causal((Causal(),), queries, keys)
