"""`attend`: the worked examples of every course, what it means, what it refuses, and `merge`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend, merge
from qkv.nn.kernels.backends import BACKENDS, choose, register
from qkv.nn.kernels.native.compiler import library
from qkv.nn.kernels.plan import Plan
from qkv.nn.kernels.request import Request
from qkv.nn.patterns.basic import causal, documents, sinks, window
from qkv.nn.positions.base import Bias
from qkv.nn.positions.bias import ALiBi, T5Buckets

BACKEND = pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
INF = float("inf")


def rows(*numbers: list[float]) -> Tensor:
    """(T, D) numbers as one row and one head."""
    return torch.tensor(numbers, dtype=torch.float64)[None, :, None]


def random(b: int = 2, t: int = 5, s: int = 5, h: int = 4, k: int = 4, d: int = 8, e: int = 8) -> tuple[Tensor, ...]:
    sizes = [(b, t, h, d), (b, s, k, d), (b, s, k, e)]
    return tuple(torch.randn(size, dtype=torch.float64) for size in sizes)


# -- worked examples --------------------------------------------------------------------------------------------------


@BACKEND
def test_one_query_two_keys(backend: str) -> None:
    """Scores 2 and 3; weights 0.2689 and 0.7311."""
    out = attend(rows([2, 1]), rows([1, 0], [1, 1]), rows([3, 6], [7, 12]), scale=1.0, backend=backend)
    torch.testing.assert_close(out, rows([5.9242, 10.3863]), atol=1e-4, rtol=0)


@BACKEND
def test_three_queries_two_keys(backend: str) -> None:
    out = attend(rows([1, 0], [2, 1], [0, 1]), rows([1, 1], [0, 1]), rows([4, 8], [6, 12]), scale=1.0, backend=backend)
    torch.testing.assert_close(out, rows([4.5379, 9.0758], [4.2384, 8.4768], [5, 10]), atol=5e-5, rtol=0)


@BACKEND
def test_attention_is_permutation_equivariant_without_positions(backend: str) -> None:
    (q, k, v), order = random(t=7, s=7), torch.randperm(7)
    out = attend(q, k, v, backend=backend)
    torch.testing.assert_close(attend(q[:, order], k[:, order], v[:, order], backend=backend), out[:, order])
    assert not torch.allclose(out[:, order], out), "equivariant, not invariant"


def test_softmax_saturates_without_the_scale() -> None:
    q, k = torch.randn(1, 64, 1, 512), torch.randn(1, 64, 1, 512)
    identity = torch.eye(64)[None, :, None]  # values that show the weights
    plain, scaled = (attend(q, k, identity, scale=s).amax(-1).mean() for s in (1.0, None))
    assert plain > 0.9 and scaled < 0.3


@BACKEND
def test_masking_scores_is_not_zeroing_weights(backend: str) -> None:
    q, k, _ = random(t=6, s=6, h=1, k=1)
    identity = torch.eye(6, dtype=torch.float64).expand(2, 6, 6)[:, :, None]
    whole, masked = (attend(q, k, identity, pattern=p, backend=backend) for p in (causal() | ~causal(), causal()))
    zeroed = whole * torch.ones(6, 6).tril()[:, None]
    assert torch.allclose(masked.sum(-1), torch.ones(2, 6, 1, dtype=torch.float64))
    assert (zeroed.sum(-1)[:, :-1] < 0.999).all(), "zeroed rows no longer sum to one"
    torch.testing.assert_close(masked, zeroed / zeroed.sum(-1, keepdim=True))


# -- meaning -----------------------------------------------------------------------------------------------------------


@BACKEND
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_key_value_heads_are_shared_by_neighboring_query_heads(backend: str, n_kv_heads: int) -> None:
    q, k, v = random(k=n_kv_heads, e=6, s=9)
    each = 4 // n_kv_heads
    wide = attend(q, k.repeat_interleave(each, 2), v.repeat_interleave(each, 2), backend="reference")
    out = attend(q, k, v, backend=backend)
    assert out.shape == (2, 5, 4, 6)
    torch.testing.assert_close(out, wide)


@BACKEND
def test_outputs_match_the_equation(backend: str) -> None:
    q, k, v = random(s=7)
    bias = torch.randn(4, 5, 7, dtype=torch.float64)
    bias[1, 2, 3:] = -INF
    scores = torch.einsum("bthd,bshd->bhts", q, k) * 0.3 + bias
    by_hand = torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v)
    torch.testing.assert_close(attend(q, k, v, scale=0.3, bias=bias, backend=backend), by_hand)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_softcap_and_log_sum_exp(backend: str) -> None:
    q, k, v = random(s=7)
    scores = 2.0 * torch.tanh(torch.einsum("bthd,bshd->bhts", q, k) / 2.0)
    out, lse = attend(q, k, v, scale=1.0, softcap=2.0, return_lse=True, backend=backend)
    torch.testing.assert_close(lse, scores.logsumexp(-1))
    torch.testing.assert_close(out, torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v))


@BACKEND
def test_the_default_scale_is_one_over_root_d(backend: str) -> None:
    q, k, v = random(d=16)
    torch.testing.assert_close(attend(q, k, v, backend=backend), attend(q, k, v, scale=0.25, backend=backend))


@BACKEND
def test_causal_alignment_is_by_positions_not_by_indices(backend: str) -> None:
    """Two last queries of six against six keys: what a cache asks for (flash-attention#282)."""
    q, k, v = random(t=6, s=6)
    whole = attend(q, k, v, pattern=causal(), backend="reference")
    late = attend(
        q[:, 4:], k, v, pattern=causal(), layout=Layout.full(2, start=4), kv_layout=Layout.full(6), backend=backend
    )
    torch.testing.assert_close(late, whole[:, 4:])


@BACKEND
@pytest.mark.parametrize("sides", [("none", "right"), ("right", "none"), ("right", "right"), ("none", "left")])
def test_causal_with_layouts_that_differ(backend: str, sides: tuple[str, str]) -> None:
    """Queries and keys of one length, padded differently: padded keys are unseen whatever the pattern."""
    q, k, v = random(t=4, s=4)
    lengths = {"none": [4, 4], "right": [2, 4], "left": [2, 4]}
    q_layout, k_layout = (Layout.from_lengths(lengths[s], side="left" if s == "left" else "right") for s in sides)
    out = attend(q, k, v, pattern=causal(), layout=q_layout, kv_layout=k_layout, backend=backend)
    place, at = (x.positions.expand(2, 4, 1)[..., 0] for x in (q_layout, k_layout))
    mask = (at[:, None] <= place[:, :, None]) & (at >= 0)[:, None] & (place >= 0)[:, :, None]
    scores = (torch.einsum("bthd,bshd->bhts", q, k) / 8**0.5).masked_fill(~mask[:, None], -INF)
    by_hand = torch.einsum("bhts,bshe->bthe", scores.softmax(-1).nan_to_num(), v)
    torch.testing.assert_close(out, by_hand)


@BACKEND
def test_segments_are_isolated(backend: str) -> None:
    q, k, v = random(b=1, t=5, s=5)
    layout = Layout.packed([[2, 3]])
    parts = [attend(q[:, a:b], k[:, a:b], v[:, a:b], backend="reference") for a, b in ((0, 2), (2, 5))]
    torch.testing.assert_close(attend(q, k, v, layout=layout, backend=backend), torch.cat(parts, 1))
    torch.testing.assert_close(
        attend(q, k, v, layout=layout, pattern=documents(), backend=backend), torch.cat(parts, 1)
    )


@BACKEND
def test_two_sides_of_one_segment_each_but_not_the_same(backend: str) -> None:
    q, k, v = random(b=1, t=3, s=3)
    one, two = (Layout(torch.arange(3)[None], segments=torch.full((1, 3), s)) for s in (1, 2))
    assert attend(q, k, v, layout=one, kv_layout=two, backend=backend).count_nonzero() == 0


@BACKEND
def test_a_query_that_sees_nothing_gets_zero(backend: str) -> None:
    q, k, v = (x.requires_grad_() for x in random(t=4, s=4))
    out = attend(q, k, v, pattern=causal() & ~window(2), backend=backend)
    assert out[:, :2].count_nonzero() == 0 and out[:, 2:].count_nonzero() == out[:, 2:].numel()
    out.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (q, k, v))
    if backend != "sdpa":
        lse = attend(q, k, v, pattern=causal() & ~window(2), return_lse=True, backend=backend)[1]
        assert (lse[:, :, :2] == -INF).all() and lse[:, :, 2:].isfinite().all()


@BACKEND
def test_padding_is_unseen_and_sees_nothing(backend: str) -> None:
    q, k, v = random(t=4, s=4)
    layout = Layout.from_lengths([2, 4], side="left")
    k[0, :2], v[0, :2] = float("nan"), INF
    out = attend(q, k, v, layout=layout, pattern=causal(), backend=backend)
    alone = attend(q[:1, 2:], k[:1, 2:], v[:1, 2:], pattern=causal(), backend="reference")
    torch.testing.assert_close(out[:1, 2:], alone)
    assert out[0, :2].count_nonzero() == 0


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled", "capped", "auto"])
def test_padded_queries_leave_gradients_alone(backend: str, side: Any) -> None:
    """Whatever stands in them: a gradient of 0 times NaN would be NaN."""
    layout, grads = Layout.from_lengths([70, 43], side=side), []
    q, k, v = random(t=70, s=70)
    for filled in (0.0, float("nan")):
        leaves = [x.masked_fill(~layout.valid[:, :, None, None], filled).requires_grad_() for x in (q, k, v)]
        softcap = 20.0 if backend == "capped" else None
        out = attend(*leaves, layout=layout, pattern=causal(), backend=backend, softcap=softcap)
        out.square().sum().backward()
        grads.append([x.grad for x in leaves])
    assert all(grad.count_nonzero() for grad in grads[0])
    torch.testing.assert_close(*grads)


def test_clean_means_that_padding_is_zero_already() -> None:
    q, k, v = random(t=3, s=3)
    layout = Layout.from_lengths([2, 3])
    k[0, 2:], v[0, 2:] = 0.0, 0.0
    cleaned, trusted = (attend(q, k, v, layout=layout, clean=c, backend="reference") for c in (False, True))
    assert torch.equal(cleaned, trusted)
    v[0, 2:] = float("nan")
    assert attend(q, k, v, layout=layout, backend="sdpa").isfinite().all()


def test_keys_without_a_layout_stand_where_the_queries_do() -> None:
    q, k, v = random(t=3, s=3)
    layout = Layout.from_lengths([2, 3], side="left")
    both = attend(q, k, v, layout=layout, kv_layout=layout, pattern=causal())
    assert torch.equal(attend(q, k, v, layout=layout, pattern=causal()), both)


@BACKEND
def test_dropout_keeps_the_mean_and_drops_its_share(backend: str) -> None:
    t, s, p = 40, 50, 0.3
    q, k = torch.randn(1, t, 2, 8), torch.randn(1, s, 2, 8)
    identity = torch.eye(s)[None, :, None].expand(1, s, 2, s)
    weights = attend(q, k, identity, backend="reference")
    dropped = torch.stack([attend(q, k, identity, dropout=p, backend=backend) for _ in range(20)])
    share = (dropped == 0).float().mean()
    assert abs(share - p) < 5 * (p * (1 - p) / dropped.numel()) ** 0.5
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], (weights / (1 - p)).expand_as(dropped)[kept])
    assert (dropped[0] != 0).ne(dropped[1] != 0).any(), "every call draws anew"


# -- refusals ----------------------------------------------------------------------------------------------------------


def _sizes(**sizes: int) -> Any:
    return lambda: random(**sizes)


@pytest.mark.parametrize(
    "tensors, options, said",
    [
        (_sizes(s=7), {"pattern": causal()}, "5 queries and 7 keys.*give layout= and kv_layout="),
        (_sizes(s=7), {"bias": Bias(ALiBi(), (torch.ones(4),))}, "5 queries and 7 keys.*give layout= and kv_layout="),
        (_sizes(s=7), {"pattern": causal(), "kv_layout": Layout.full(7)}, "needs for the queries; give both"),
        (_sizes(k=3), {}, "3 key-value heads can't share 4 query heads: the first must divide the second"),
        (lambda: [x[0] for x in random()], {}, r"\(batch, length, heads, width\); got 3, 3 and 3 axes"),
        (lambda: [torch.randn(3)] * 3, {}, r"\(batch, length, heads, width\); got 1, 1 and 1 axes"),
        (lambda: [random(d=8)[0], *random(d=6)[1:]], {}, r"don't fit together: q \(2, 5, 4, 8\), k \(2, 5, 4, 6\)"),
        (lambda: [*random()[:2], random(s=4)[2]], {}, r"don't fit together: .* v \(2, 4, 4, 8\)"),
        (_sizes(), {"layout": Layout.full(4)}, "layout is for 1 rows of 4 tokens, the tensor has 2 of 5"),
        (_sizes(), {"kv_layout": Layout.from_lengths([5, 4, 3])}, "layout is for 3 rows of 5 tokens.* 2 of 5"),
        (_sizes(), {"dropout": 1.0}, r"dropout is a probability in \[0, 1\), not 1.0"),
        (_sizes(), {"dropout": -0.1}, r"dropout is a probability in \[0, 1\), not -0.1"),
        (_sizes(), {"softcap": 0.0}, "softcap is a positive number, not 0.0"),
        (_sizes(), {"backend": "tield"}, "there is no backend 'tield'; did you mean 'tiled'"),
        (_sizes(), {"backend": "sdpa", "softcap": 2.0}, "'sdpa' can't serve .*no soft-cap; choose another, or 'auto'"),
        (_sizes(), {"backend": "sdpa", "return_lse": True}, "'sdpa' can't serve .*log-sum-exp; choose another"),
        (_sizes(), {"bias": torch.zeros(3, 5, 5)}, r"bias.*\(3, 5, 5\)"),
        (_sizes(), {"bias": torch.ones(5, 5, dtype=torch.bool)}, "bias.*bool"),
    ],
)
def test_refusals_say_what_was_given_and_what_is_allowed(tensors: Any, options: dict[str, Any], said: str) -> None:
    q, k, v = tensors()
    with pytest.raises(ValueError, match=said):
        attend(q, k, v, **options)


def request_of(t: int = 8, s: int = 8, **options: Any) -> Request:
    q, k, v = torch.zeros(1, t, 8, 64), torch.zeros(1, s, 8, 64), torch.zeros(1, s, 8, 64)
    rest: dict[str, Any] = {"pattern": causal(), "bias": None, "dropout": 0.0, "softcap": None, "return_lse": False}
    made = {**rest, **options}
    return Request(q=q, k=k, v=v, layout=Layout.full(t), kv_layout=Layout.full(s), scale=0.125, plan=Plan(), **made)


@pytest.mark.parametrize(
    "options, chosen",
    [
        ({}, "sdpa"),
        ({"softcap": 30.0}, "capped"),
        ({"return_lse": True, "t": 1024, "s": 1024}, "tiled"),
        ({"dropout": 0.1, "t": 512, "s": 512}, "tiled"),
        ({"dropout": 0.1, "t": 4096, "s": 4096, "pattern": causal() | ~causal()}, "tiled"),
        ({"t": 4096, "s": 4096, "pattern": causal() & window(256) | causal() & sinks(4)}, "tiled"),
        ({"t": 1, "s": 4096, "pattern": causal() & window(256)}, "decode" if library("decoding") else "sdpa"),
    ],
)
def test_auto_picks_by_what_each_backend_is_good_at(options: dict[str, Any], chosen: str) -> None:
    assert choose(request_of(**options)) == chosen


def test_auto_avoids_plain_mathematics_for_a_trained_bias() -> None:
    bias = Bias(T5Buckets(), (torch.zeros(32, 8, requires_grad=True),))
    assert choose(request_of(4096, 4096, bias=bias)) == "tiled"
    with torch.no_grad():
        assert choose(request_of(4096, 4096, bias=bias)) == "sdpa"


def test_a_backend_is_added_under_its_own_name() -> None:
    class Zeros:
        def refuses(self, request: Request) -> str | None:
            return "it only counts to four" if request.k.shape[1] > 4 else None

        def run(self, request: Request) -> Tensor:
            return torch.zeros_like(request.q)

    register("zeros", Zeros())
    try:
        assert attend(*random(t=4, s=4), backend="zeros").count_nonzero() == 0
        with pytest.raises(ValueError, match="'zeros' can't serve this request: it only counts to four"):
            attend(*random(), backend="zeros")
        with pytest.raises(ValueError, match="there is already a backend 'zeros'"):
            register("zeros", Zeros())
    finally:
        del BACKENDS["zeros"]


# -- merge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@given(cuts=st.lists(st.integers(0, 6), min_size=2, max_size=2).map(sorted), seed=st.integers(0, 99))
def test_merge_is_exact_and_associative(backend: str, cuts: list[int], seed: int) -> None:
    """Keys cut in three (an empty part saw nothing), causal, so early queries see nothing of later parts."""
    torch.manual_seed(seed)
    q, k, v = random(b=1, t=6, s=6, h=2, k=1, d=4, e=3)
    ends = [(0, cuts[0]), (cuts[0], cuts[1]), (cuts[1], 6)]
    parts = [
        attend(
            q, k[:, a:b], v[:, a:b], pattern=causal(), layout=Layout.full(6), kv_layout=Layout.full(b - a, start=a),
            return_lse=True, backend=backend,
        )
        for a, b in ends
        if b > a
    ]  # fmt: skip
    nothing = (torch.zeros_like(parts[0][0]), torch.full_like(parts[0][1], -INF))
    first, *others = [nothing, *parts]
    left, right = first, parts[-1]
    for part in others:
        left = merge(*left, *part)
    for part in reversed(parts[:-1]):
        right = merge(*part, *right)
    whole = attend(q, k, v, pattern=causal(), return_lse=True, backend="reference")
    for made in (left, right):
        torch.testing.assert_close(made, whole)


def test_merge_of_nothing_and_nothing_is_nothing() -> None:
    zero, none = torch.zeros(1, 2, 1, 3), torch.full((1, 1, 2), -INF)
    out, lse = merge(zero, none, zero, none)
    assert out.count_nonzero() == 0 and (lse == -INF).all()


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_merge_has_the_gradients_of_the_whole(backend: str) -> None:
    """Also for a query that saw nothing on either side, whose gradients are zero and not NaN."""
    tensors = [x.requires_grad_() for x in random(t=4, s=4)]
    hidden = causal() & ~window(1)  # the first query sees nothing at all

    def side(a: int, b: int) -> tuple[Tensor, Tensor]:
        q, k, v = tensors
        return attend(
            q, k[:, a:b], v[:, a:b], pattern=hidden, layout=Layout.full(4), kv_layout=Layout.full(b - a, start=a),
            return_lse=True, backend=backend,
        )  # fmt: skip

    weight = torch.randn(2, 4, 4, 8, dtype=torch.float64)
    grads = [
        torch.autograd.grad((out * weight).sum(), tensors)
        for out in (merge(*side(0, 2), *side(2, 4))[0], attend(*tensors, pattern=hidden, backend="reference"))
    ]
    torch.testing.assert_close(*grads)


# -- what is given wrongly ------------------------------------------------------------------------------------------------


@BACKEND
@pytest.mark.parametrize(
    ("dtypes", "said"),
    [
        ((torch.float32, torch.float16, torch.float16), "must have one dtype, not float32, float16, float16"),
        ((torch.float32, torch.float32, torch.float64), "must have one dtype, not float32, float32, float64"),
        ((torch.int64, torch.int64, torch.int64), "must be floating point, not int64, int64, int64"),
        ((torch.complex64, torch.float32, torch.float32), "must be floating point, not complex64"),
    ],
)
def test_dtypes_that_do_not_meet(dtypes: tuple[torch.dtype, ...], said: str, backend: str) -> None:
    with pytest.raises(ValueError, match=said):
        attend(*(x.to(dtype) for x, dtype in zip(random(), dtypes, strict=True)), backend=backend)


def test_autocast_brings_dtypes_together() -> None:
    q, k, v = (x.float() for x in random())
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(q, k.bfloat16(), v.bfloat16())
    torch.testing.assert_close(out, attend(q, k, v), atol=0.05, rtol=0.05)


@given(st.tuples(*[st.integers(0, 2)] * 4), st.integers(0, 2), st.sampled_from(["auto", "reference", "sdpa", "tiled"]))
def test_sizes_of_nothing(shape: tuple[int, ...], kv_heads: int, backend: str) -> None:
    """No rows and no tokens are nothing to compute; no heads and no width are a mistake, and said to be one."""
    b, t, h, d = shape
    q, k = torch.randn(b, t, h, d), torch.randn(b, t, kv_heads, d)
    if 0 in (h, kv_heads, d) or h % kv_heads:
        with pytest.raises(ValueError, match=r"at least one head of width 1 or more|can't share"):
            attend(q, k, k, backend=backend)
    else:
        assert attend(q, k, k, backend=backend).shape == q.shape


def test_devices_that_do_not_meet() -> None:
    q, k, v = random()
    with pytest.raises(ValueError, match="must be on one device, not cpu, meta and meta"):
        attend(q, k.to("meta"), v.to("meta"))


def test_heads_second_are_noticed_where_the_shape_is_improbable() -> None:
    x = torch.randn(1, 8, 512, 64)
    with pytest.warns(UserWarning, match=r"8 tokens of 512 heads: .* give q.transpose\(1, 2\)"):
        attend(x, x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attend(*[x.transpose(1, 2)] * 3)
        attend(*random(t=1, s=9, h=128, k=8))
        wide = torch.randn(1, 1, 232, 4)  # Falcon 180B has as many, and its layers share a plan
        attend(wide, wide, wide, plan=Plan())


@pytest.mark.parametrize(
    "name", ["q", "k", "v", "pattern", "layout", "kv_layout", "bias", "plan", "sinks", "weighting"]
)
@pytest.mark.parametrize("wrong", [3, "x", b"x", [1.0], (2,), {"a": 1}, object(), numpy.zeros((1, 2, 2, 4)), int])
def test_an_argument_of_a_wrong_type_is_named(name: str, wrong: Any) -> None:
    x = torch.zeros(1, 2, 2, 4)
    with pytest.raises(ValueError, match=f"^{name} is a ") as caught:
        attend(**{"q": x, "k": x, "v": x, name: wrong})
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)
