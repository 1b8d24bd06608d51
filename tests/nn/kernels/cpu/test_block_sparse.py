"""Our own kernels for patterns that leave out much: equal to the reference with its gradients, on any number of threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fast_subset import thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.backends import choose
from qkv.nn.kernels.cpu import block_plan, block_sparse
from qkv.nn.kernels.cpu.block_sparse import BlockSparse
from qkv.nn.kernels.cpu.identity_cache import IdentityCache
from qkv.nn.kernels.native.block_sparse import SIDE
from qkv.nn.kernels.native.compiler import library
from qkv.nn.kernels.plan import Plan
from qkv.nn.kernels.products import onednn
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import (
    causal,
    chunks,
    dilated,
    fixed,
    full,
    global_tokens,
    prefix,
    random_blocks,
    sinks,
    strided,
    window,
)
from qkv.nn.positions.base import Bias, Widths
from qkv.nn.positions.bias import ALiBi

pytestmark = pytest.mark.skipif(
    library("block_sparse") is None, reason="there is no C++ compiler to build the kernels with"
)

T = 330  # five blocks and a part of one
ROLES = (torch.arange(T) % 97 == 3).long()[None]
CASES: dict[str, dict[str, Any]] = {
    "window": {"pattern": causal() & window(70)},
    "both sides": {"pattern": window(30)},
    "dense": {"pattern": causal() | window(40)},
    "longformer": {"pattern": window(25) | global_tokens(3)},
    "longformer by roles": {"pattern": window(25) | global_tokens(), "layout": Layout.full(T).with_roles(ROLES)},
    "sinks": {"pattern": causal() & (window(65) | sinks(2))},
    "blind": {"pattern": causal() & ~window(90)},
    "random": {"pattern": causal() & (window(64) | random_blocks(64, 1, seed=1))},
    "chunks": {"pattern": chunks(100)},
    "fixed": {"pattern": fixed(64, 2)},
    "prefix": {"pattern": causal() & window(64) | prefix(), "layout": Layout.full(T).with_roles(2 * ROLES)},
    "dilated": {"pattern": causal() & dilated(9, 3)},
    "strided": {"pattern": causal() & strided(40)},
    "strided both ways": {"pattern": strided(90)},
    "packed": {"pattern": causal(), "layout": Layout.packed([[100, 150, 80]])},
    "padded": {"pattern": causal() & window(64), "layout": Layout.from_lengths([290], T)},
    "late": {
        "pattern": causal() & window(64),
        "layout": Layout.full(T, start=70),
        "kv_layout": Layout.full(T, start=40),
    },
}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Called for however few scores; how often they were."""
    calls: list[int] = []
    forward = BlockSparse.forward

    def counted(self: BlockSparse, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(sum(map(len, self.rows)))
        return forward(self, *tensors)

    monkeypatch.setattr(block_sparse, "MIN_SCORES", 0)
    monkeypatch.setattr(BlockSparse, "forward", counted)
    return calls


def both_ways(
    backend: str, options: dict[str, Any], shape: tuple[int, int, int, int] = (4, 2, 32, 16), dtype: Any = torch.float32
) -> list[Tensor]:
    """Output, log-sum-exp and gradients, of H query heads, K others, D and E wide."""
    h, kv, d, e = shape
    generator = torch.Generator().manual_seed(0)

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator).to(dtype)

    tensors = [draw(2, T, n, width).requires_grad_() for n, width in ((h, d), (kv, d), (kv, e))]
    out, lse = attend(*tensors, return_lse=True, backend=backend, **options)
    value = (out * draw(2, T, h, e)).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * draw(2, h, T)).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(value, tensors)]


@pytest.mark.parametrize("case", thinned(CASES, 2))
def test_equals_the_reference_with_its_gradients(case: str, always: list[int]) -> None:
    found, wanted = both_ways("tiled", CASES[case]), both_ways("reference", CASES[case], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    assert always == [2 if case.startswith("strided") else 1]


@pytest.mark.parametrize("shape", [(1, 1, 16, 16), (3, 1, 80, 48), (2, 2, 64, 128), (6, 2, 128, 64)])
def test_heads_of_all_widths(shape: tuple[int, int, int, int], always: list[int]) -> None:
    options = {"pattern": causal() & window(100)}
    found, wanted = both_ways("tiled", options, shape), both_ways("reference", options, shape, torch.float64)
    torch.testing.assert_close(found, wanted, atol=5e-5, rtol=5e-5, check_dtype=False)
    assert always == [1]


def test_lower_precision_is_computed_in_fp32(always: list[int]) -> None:
    options = {"pattern": causal() & window(100)}
    found, wanted = (
        both_ways("tiled", options, dtype=torch.float16),
        both_ways("reference", options, dtype=torch.float16),
    )
    assert found[0].dtype == torch.float16 and found[2].dtype == torch.float16
    torch.testing.assert_close(found, wanted, atol=4e-2, rtol=4e-2, check_dtype=False)
    assert always == [1]


@pytest.mark.parametrize("case", ["window", "strided", "longformer"])
def test_the_number_of_threads_changes_no_bit(case: str) -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(both_ways("tiled", CASES[case]))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def alibi(**settings: Any) -> Bias:
    bias = ALiBi(**settings).module(Widths(64, 4, 16, None)).bias()
    assert bias is not None
    return bias


@pytest.mark.parametrize("case", [name for name in CASES if name != "dense"])
def test_scores_may_fall_with_distance(case: str, always: list[int]) -> None:
    options = {**CASES[case], "bias": alibi(scale=0.7)}
    found, wanted = both_ways("tiled", options), both_ways("reference", options, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    assert always


@pytest.mark.parametrize("case", ["packed", "padded", "to the right"])
def test_scores_fall_with_the_distance_in_each_row(case: str, always: list[int]) -> None:
    options = {**ROWS[case], "bias": alibi()}
    found, wanted = both_ways("tiled", options), both_ways("reference", options, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    assert always == [2]


@pytest.mark.parametrize("bias", [alibi(precision="bfloat16"), torch.randn(1, 4, T, T)])
def test_other_biases_go_another_way(bias: Any, always: list[int]) -> None:
    options = {"pattern": causal() & window(70), "bias": bias}
    found, wanted = both_ways("tiled", options), both_ways("reference", options, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    assert not always


def test_tensors_may_lie_in_any_way(always: list[int]) -> None:
    packed = torch.randn(2, 4, 3, T, 32).permute(2, 0, 3, 1, 4)  # heads before tokens, q, k and v as one
    pattern = window(30)
    found = attend(*packed, pattern=pattern, backend="tiled")
    torch.testing.assert_close(found, attend(*packed.contiguous(), pattern=pattern, backend="tiled"))
    torch.testing.assert_close(found, attend(*packed, pattern=pattern, backend="reference"), atol=1e-5, rtol=1e-5)
    assert len(always) == 2


def test_large_scores_stay_finite() -> None:
    q, k, v = torch.randn(3, 1, T, 2, 32) * 30
    found = attend(q, k, v, pattern=window(30), backend="tiled")
    wanted = attend(q.double(), k.double(), v.double(), pattern=window(30), backend="reference")
    torch.testing.assert_close(found.double(), wanted, atol=1e-3, rtol=1e-3)


ROWS: dict[str, dict[str, Any]] = {
    "packed": {"pattern": causal(), "layout": Layout.packed([[100, 150, 80], [T - 7, 3]], T)},
    "padded": {"pattern": window(60), "layout": Layout.from_lengths([T, 211])},
    "to the right": {"pattern": causal(), "layout": Layout.from_lengths([300, 17], T, "left")},
    "one for all keys": {
        "pattern": full(),
        "layout": Layout.full(T),
        "kv_layout": Layout.from_lengths([T, 100]),
    },
}


@pytest.mark.parametrize("case", ROWS)
def test_rows_of_a_batch_may_each_have_a_plan(case: str, always: list[int]) -> None:
    found, wanted = both_ways("tiled", ROWS[case]), both_ways("reference", ROWS[case], dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    assert always == [2]


@pytest.mark.parametrize("case", ROWS)
def test_rows_have_plans_in_inference_too(case: str, always: list[int]) -> None:
    with torch.inference_mode():
        layouts = {"layout": Layout.packed([[100, 230], [T]], T)} if case == "packed" else {}
        q, k, v = torch.randn(3, 2, T, 2, 32)
        options = {**ROWS[case], **layouts}
        found, wanted = (attend(q, k, v, backend=b, **options) for b in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert always == [2]


def test_plans_are_remembered_while_the_layout_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plan = block_plan.plan
    monkeypatch.setattr(block_plan, "plan", lambda *given: asked.append(1) or plan(*given))
    monkeypatch.setattr(block_plan, "_by_row", IdentityCache())
    both_ways("tiled", ROWS["packed"])
    assert len(asked) == 2  # one for each row, of forward and backward together
    other = {"pattern": causal(), "layout": Layout.packed([[100, 150, 80], [T - 9, 5]], T)}
    found, wanted = both_ways("tiled", other), both_ways("reference", other, dtype=torch.float64)
    torch.testing.assert_close(found, wanted, atol=3e-5, rtol=3e-5, check_dtype=False)
    for _ in range(20):
        both_ways("tiled", {"pattern": causal(), "layout": Layout.packed([[100, 230], [T]], T)})
    assert len(block_plan._by_row._entries) <= 8


@pytest.mark.parametrize("case", ["window", "strided"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_no_number_in_a_query_shows_in_its_row_alone(bad: float, case: str, always: list[int]) -> None:
    q, k, v = torch.randn(3, 1, T, 2, 32)
    q[0, 77, 1, 3] = bad
    q.requires_grad_()
    found, wanted = (attend(q, k, v, backend=b, **CASES[case]) for b in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5, equal_nan=True)
    assert int(found.isnan().sum()) == 32
    (d_q,) = torch.autograd.grad(found[0, 77, 1].sum(), q)
    assert d_q[0, 77, 1].isnan().all() and always


@pytest.mark.parametrize("case", ["window", "dilated", "strided", "longformer"])
@pytest.mark.parametrize("where", ["k", "v"])
def test_what_is_no_number_in_a_key_reaches_those_who_see_it_alone(where: str, case: str) -> None:
    q, k, v = torch.randn(3, 1, T, 2, 32)
    (k if where == "k" else v)[0, 150, 1, 3] = float("nan")
    tensors = [x.requires_grad_() for x in (q, k, v)]
    found, wanted = (attend(*tensors, backend=b, **CASES[case]) for b in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5, equal_nan=True)
    clean = ~wanted.detach().isnan().any(-1)
    assert clean.any() and not clean.all()
    (d_q,) = torch.autograd.grad(found[clean].sum(), q)
    assert d_q[clean].isfinite().all()


def test_keys_that_no_block_meets_may_be_anything(always: list[int]) -> None:
    """They are not even read: nothing falls back."""
    q, k, v = torch.randn(3, 1, T, 2, 32)
    k[:, :64], v[:, :64] = float("nan"), float("inf")
    options = {"pattern": causal() & window(30), "layout": Layout.full(200), "kv_layout": Layout.full(T)}
    late = {**options, "layout": Layout.full(200, start=130)}
    found, wanted = (attend(q[:, :200], k, v, backend=b, **late) for b in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert found.isfinite().all() and always == [1]


@pytest.mark.parametrize("what", ["float64", "width"])
def test_what_they_do_not_take_goes_another_way(what: str, always: list[int]) -> None:
    dtype, width = (torch.float64 if what == "float64" else torch.float32), (24 if what == "width" else 32)
    q, k, v = torch.randn(3, 2, T, 2, width, dtype=dtype)
    found, wanted = (attend(q, k, v, pattern=window(30), backend=b) for b in ("tiled", "reference"))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert not always


@pytest.mark.parametrize("favored", [False, True])
def test_auto_takes_them_where_something_would_be_hidden(favored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_faster", lambda: favored)
    monkeypatch.setattr(block_sparse, "_MOST_FULL", T)
    q = torch.randn(1, T, 2, 32)
    layout = Layout.full(T)

    def chosen(pattern: Any, bias: Any = None, layout: Layout = layout) -> str:
        return choose(Request(q, q, q, pattern, layout, layout, bias, 0.2, 0.0, None, False, Plan()))

    assert chosen(causal() & window(70)) == chosen(causal() & window(70), alibi()) == "tiled"
    assert chosen(causal() & window(70), alibi(precision="bfloat16")) == "sdpa"
    # for which the fused function needs no mask
    assert chosen(causal()) == chosen(full()) == ("tiled" if favored else "sdpa")
    padded = Layout.from_lengths([T - 9], T)
    assert chosen(causal(), layout=padded) == ("tiled" if favored else "sdpa")
    assert chosen(full(), layout=padded) == "sdpa"
    picture = Layout(torch.zeros(1, T, 3, dtype=torch.long), padding="none")  # positions of patches
    assert chosen(full(), layout=picture) == ("tiled" if favored else "sdpa")
    assert chosen(full(), layout=replace(picture, one_segment=False)) == "sdpa"
    monkeypatch.setattr(block_sparse, "_MOST_FULL", T - 1)
    assert chosen(full()) == "sdpa"
    assert chosen(causal(), torch.zeros(1, 2, T, T)) == "sdpa"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_causal_attention_does_not_visit_padding(
    dtype: torch.dtype, always: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding on the right changes neither plans nor outputs of tokens."""
    monkeypatch.setattr(onednn, "is_faster", lambda: True)
    q, k, v = (torch.randn(2, T, 2, 32).to(dtype).requires_grad_() for _ in range(3))
    layout = Layout.from_lengths([T - 70, T], T)
    found, wanted = [], []
    for backend, into in (("auto", found), ("reference", wanted)):
        out = attend(q, k, v, pattern=causal(), layout=layout, backend=backend)
        into += [out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))]
    assert always == [1], "one plan for all rows"
    for own, other in zip(found, wanted, strict=True):
        loose = dtype == torch.bfloat16
        torch.testing.assert_close(own, other, atol=0.05 if loose else 1e-5, rtol=0.05 if loose else 1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(1, 150), st.integers(1, 150), st.booleans())
def test_a_plan_holds_just_the_allowed_pairs(t: int, back: int, ahead: int, past: bool) -> None:
    pattern = causal() & window(back, ahead) if past else window(back, ahead)
    made = block_plan.plan(pattern, Layout.full(t), Layout.full(t))
    assert made is not None
    seen = np.zeros((2 * SIDE + t, 2 * SIDE + t), bool)
    for strip, start, stop in zip(made.number.tolist(), made.ends.tolist(), made.ends[1:].tolist(), strict=False):
        for block, table in zip(made.block[start:stop].tolist(), made.table[start:stop].tolist(), strict=True):
            allowed = np.ones((SIDE, SIDE), bool) if table < 0 else (made.limits[table] > 0).numpy().T
            spans = [(0, SIDE)] * 4 if table < 0 else made.spans[table].tolist()
            seen_by = [allowed[:, 16 * i : 16 * i + 16].any(1).nonzero()[0] for i in range(4)]
            for (first, end), by in zip(spans, seen_by, strict=True):
                assert (first // 16, -(-end // 16)) == (by[0] // 16, by[-1] // 16 + 1) if len(by) else first >= end
            seen[strip * SIDE : (strip + 1) * SIDE, block * SIDE : (block + 1) * SIDE] = allowed
    assert np.array_equal(seen[:t, :t], pattern.mask(t).numpy())
