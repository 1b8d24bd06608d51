"""Attention in bf16 by our own kernels for CPUs with AMX: as exact as bf16 is, whatever hides pairs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.backends import choose
from qkv.nn.kernels.cpu import bf16_amx, block_plan
from qkv.nn.kernels.native import bf16_amx as native
from qkv.nn.kernels.plan import Plan
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import Pattern, causal, dilated, full, global_tokens, window

pytestmark = pytest.mark.skipif(not native.LIKELY, reason="this CPU has no AMX, or there is no C++ compiler")

T, S = 150, 130
LENGTHS = [150, 3, 149, 64, 65, 100]


def packed() -> Layout:
    """Documents of 40, 50, 7, 64 and 30 tokens, one after the other; the last row is one."""
    size = torch.tensor([40, 50, 7, 64, 30, 200])[:, None]
    index = torch.arange(T)[None]
    return Layout(index % size, segments=index // size, padding="none", one_segment=False, sequential=True)


LAYOUTS = {
    "plain": Layout.full(T),
    "right": Layout.from_lengths(LENGTHS, T),
    "left": Layout.from_lengths(LENGTHS, T, "left"),
    "packed": packed(),
}
RULES: dict[str, Pattern] = {
    "full": full(),
    "causal": causal(),
    "window": window(40),
    "causal window": causal() & window(70),
}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the kernels ran; they are wanted for any number of scores."""
    count, forward = [0], native.forward

    def counted(*given: Any) -> Any:
        count[0] += 1
        return forward(*given)

    monkeypatch.setattr(native, "forward", counted)
    monkeypatch.setattr(bf16_amx, "_MIN_SCORES", 1)
    monkeypatch.setattr(bf16_amx, "_MIN_SCORES_FORWARD", 1)
    return count


def drawn(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed)).bfloat16()


def both_ways(backend: str, given: list[Tensor], dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """Output and gradients of q, k, v, of what is given in bf16, computed in some precision."""
    *qkv, weights = (x.to(dtype) for x in given)
    qkv = [x.requires_grad_() for x in qkv]
    out = attend(*qkv, backend=backend, **options)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), qkv)]


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b).norm() / b.norm())


def assert_as_exact_as_bf16(given: list[Tensor], **options: Any) -> None:
    wanted = both_ways("reference", given, torch.float64, **options)
    found = both_ways("auto", given, torch.bfloat16, **options)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.bfloat16
        assert distance(a, b) < 0.006  # rounding a number to bf16 is 0.0017 on average


@pytest.mark.parametrize("where", LAYOUTS)
@pytest.mark.parametrize("rule", RULES)
def test_equals_the_reference_with_its_gradients(rule: str, where: str, served: list[int]) -> None:
    layout = LAYOUTS[where]
    given = [drawn(6, T, h, 32, seed=i) for i, h in enumerate((4, 2, 2, 4))]
    assert_as_exact_as_bf16(given, pattern=RULES[rule], layout=layout, kv_layout=layout)
    assert served == [1]


@pytest.mark.parametrize("causally", [False, True])
def test_is_no_farther_from_exact_than_the_fused_function(causally: bool, served: list[int]) -> None:
    given = [drawn(2, 200, 4, 64, seed=i) for i in range(4)]
    pattern = causal() if causally else full()
    wanted = both_ways("reference", given, torch.float64, pattern=pattern)
    found = both_ways("auto", given, torch.bfloat16, pattern=pattern)
    q, k, v = (x.transpose(1, 2).requires_grad_() for x in given[:3])
    fused = F.scaled_dot_product_attention(q, k, v, is_causal=causally)
    theirs = [fused, *torch.autograd.grad((fused * given[3].transpose(1, 2)).sum(), [q, k, v])]
    for ours, other, exact in zip(found, theirs, wanted, strict=True):
        assert distance(ours, exact) < 1.05 * distance(other.detach().transpose(1, 2), exact)
    assert served == [1]


def test_documents_that_stand_in_pieces_go_another_way(served: list[int]) -> None:
    """If a document continues behind another one, tokens' numbers no longer say how far apart they are."""
    segments = torch.arange(T)[None] // 25 % 2
    positions = torch.arange(T)[None] // 50 * 25 + torch.arange(T)[None] % 25
    layout = Layout(positions, segments=segments, padding="none", one_segment=False)
    given = [drawn(1, T, 2, 16, seed=i) for i in range(4)]
    options = {"pattern": window(30), "layout": layout, "kv_layout": layout}
    wanted = both_ways("reference", given, torch.float64, **options)
    for a, b in zip(both_ways("tiled", given, torch.bfloat16, **options), wanted, strict=True):
        assert distance(a, b) < 0.01
    assert served == [0]


def test_queries_of_one_layout_meet_keys_of_another(served: list[int]) -> None:
    given = [drawn(6, n, 4, 32, seed=i) for i, n in enumerate((T, S, S, T))]
    keys = Layout.from_lengths([130, 5, 66, 1, 100, 64], S)
    assert_as_exact_as_bf16(given, layout=LAYOUTS["right"], kv_layout=keys)
    assert served == [1]


@settings(max_examples=15, deadline=None)
@given(
    b=st.integers(1, 3),
    group=st.integers(1, 3),
    kv=st.integers(1, 2),
    t=st.integers(16, 200),
    d=st.integers(1, 130),
    e=st.integers(1, 130),
)
def test_all_shapes(b: int, group: int, kv: int, t: int, d: int, e: int) -> None:
    sizes = ((group * kv, d), (kv, d), (kv, e), (group * kv, e))
    given = [drawn(b, t, h, n, seed=i) for i, (h, n) in enumerate(sizes)]
    layout = Layout.full(t)
    way = bf16_amx.Bf16Attention(block_plan.consecutive(causal(), t, t, 0, 0)[0], None, d**-0.5)  # type: ignore[arg-type, index]
    out, lse = way.forward(*given[:3])  # type: ignore[misc]
    wanted = both_ways("reference", given, torch.float64, pattern=causal(), layout=layout, kv_layout=layout)
    found = [out, *way.backward(*given[:3], out, lse, given[3], None)]  # type: ignore[misc]
    for a, b_ in zip(found, wanted, strict=True):
        assert float((a.double() - b_).abs().max()) < 0.02 * (1 + float(b_.abs().max()))


def test_the_log_sum_exp_and_its_gradient(served: list[int]) -> None:
    def both(dtype: torch.dtype, backend: str) -> list[Tensor]:
        q, k, v = (drawn(2, T, 4, 32, seed=i).to(dtype).requires_grad_() for i in range(3))
        out, lse = attend(q, k, v, pattern=causal(), return_lse=True, backend=backend)
        return [lse.detach(), *torch.autograd.grad(lse.sum() + out.float().sum(), [q, k])]

    for a, b in zip(both(torch.bfloat16, "tiled"), both(torch.float64, "reference"), strict=True):
        assert distance(a, b) < 0.006
    assert served == [1]


def test_what_sees_nothing_gives_zero_and_takes_no_gradient(served: list[int]) -> None:
    queries = torch.arange(T)[None] // 75
    lonely = Layout(torch.arange(T)[None], segments=queries, padding="none", sequential=True, one_segment=False)
    keys = Layout(torch.arange(T)[None], segments=torch.zeros_like(queries), padding="none", sequential=True)
    q, k, v = (drawn(1, T, 2, 16, seed=i).requires_grad_() for i in range(3))
    out = attend(q, k, v, layout=lonely, kv_layout=keys)
    assert served == [1]
    assert out[:, 75:].count_nonzero() == 0 and out[:, :75].count_nonzero() > 0
    grads = torch.autograd.grad(out.float().sum(), [q, k, v])
    assert grads[0][:, 75:].count_nonzero() == 0
    assert all(bool(x.isfinite().all()) for x in grads)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_hidden_keys_that_are_not_finite_do_not_show(bad: float, served: list[int]) -> None:
    q, k, v = (drawn(1, T, 2, 16, seed=i) for i in range(3))
    clean = attend(q, k, v, pattern=causal())
    k[:, 100:], v[:, 100:] = bad, bad
    torch.testing.assert_close(attend(q, k, v, pattern=causal())[:, :100], clean[:, :100], atol=2e-2, rtol=2e-2)


def test_a_query_that_is_not_a_number_shows_in_its_row_alone(served: list[int]) -> None:
    q, k, v = (drawn(1, T, 2, 16, seed=i) for i in range(3))
    clean = attend(q, k, v, pattern=causal())
    q[0, 70, 1] = float("nan")
    found = attend(q, k, v, pattern=causal())
    assert bool(found[0, 70, 1].isnan().all())
    found[0, 70, 1] = clean[0, 70, 1]
    assert torch.equal(found, clean)
    assert served == [2]


def test_the_number_of_threads_changes_no_bit() -> None:
    given = [drawn(3, 300, h, 64, seed=i) for i, h in enumerate((4, 2, 2, 4))]
    before, found = torch.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            found.append(both_ways("auto", given, torch.bfloat16, pattern=causal() & window(100)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_it_compiles_into_one_graph(served: list[int]) -> None:
    given, rule = [drawn(2, T, 4, 32, seed=i) for i in range(3)], causal()
    compiled = torch.compile(lambda *x: attend(*x, pattern=rule), fullgraph=True)
    assert torch.equal(compiled(*given), attend(*given, pattern=rule))
    assert served == [2]


def request(pattern: Pattern, layout: Layout, **changes: Any) -> Request:
    q = drawn(6, T, 4, 32)
    about = {"bias": None, "scale": 0.2, "dropout": 0.0, "softcap": None, "return_lse": False, "plan": Plan()} | changes
    return Request(q, q, q, pattern, layout, layout, **about)  # type: ignore[arg-type]


def test_whom_they_serve() -> None:
    plain = LAYOUTS["plain"]
    assert choose(request(causal(), plain)) == "tiled"
    assert choose(request(causal(), LAYOUTS["packed"])) == "tiled"
    for other in (
        request(causal(), plain, dropout=0.1),
        request(causal(), plain, softcap=30.0),
        request(causal(), plain, bias=torch.zeros(T, T)),
        request(dilated(40, 4), plain),  # which other kernels take by an order of tokens
        request(global_tokens(first=4) | window(8), LAYOUTS["left"]),  # where a token's place is not its number
        request(causal(), plain, scale=-1.0),
    ):
        assert not bf16_amx.expected(other)
