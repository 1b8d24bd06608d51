"""Linear attention against its definition, pair by pair in float64: chunks, documents, padding, logs, and the recurrence."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.attention.feature_maps import Features
from qkv.attention.mechanisms import linear
from qkv.attention.mechanisms.linear import LinearState, linear_attention
from qkv.core.layout import Layout

D, E = 5, 3


class Case(NamedTuple):
    q: Features
    k: Features
    v: Tensor
    layout: Layout


def drawn(
    layout: Layout, rows: int, logs: float = 0.0, group: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64
) -> Case:
    """Features above 0; with `logs` every token's are times e^log, the logs spread over ± that much."""
    generator, t = torch.Generator().manual_seed(seed), layout.shape[1]

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(dtype)

    q, k, v = rand(rows, t, 2 * group, D), rand(rows, t, 2, D), rand(rows, t, 2, E) - 0.5
    log = (rand(rows, t, 2) * 2 - 1) * logs if logs else None
    q_log = None if log is None else log.repeat_interleave(group, 2) * 0.3
    leaves = [x.requires_grad_() for x in (q, k, v)]
    return Case(Features(leaves[0], q_log), Features(leaves[1], log), leaves[2], layout)


def defined(case: Case, causal: bool) -> Tensor:
    """Weights of all pairs, from the layout's tensors alone."""
    rows, t = case.v.shape[:2]
    positions = case.layout.positions[..., 0].expand(rows, t)
    segments = torch.zeros_like(positions) if case.layout.segments is None else case.layout.segments.expand(rows, t)
    real = positions >= 0
    mask = real[:, :, None] & real[:, None] & (segments[:, :, None] == segments[:, None])
    if causal:
        mask = mask & (positions[:, None] <= positions[:, :, None])
    group = case.q.values.shape[2] // case.v.shape[2]
    q, k = (x.values if x.log is None else x.values * x.log.exp()[..., None] for x in (case.q, case.k))
    weights = torch.einsum("bthr,bshr->bhts", q, k.repeat_interleave(group, 2)) * mask[:, None]
    total = weights.sum(-1, keepdim=True)
    weights = weights / torch.where(total == 0, 1.0, total)
    return torch.einsum("bhts,bshe->bthe", weights, case.v.repeat_interleave(group, 2))


def same_with_gradients(case: Case, causal: bool, chunk: int) -> None:
    found, wanted = linear_attention(*case, causal, chunk=chunk), defined(case, causal)
    torch.testing.assert_close(found, wanted)
    leaves = (case.q.values, case.k.values, case.v)
    push = torch.cos(torch.arange(wanted.numel(), dtype=torch.float64)).view_as(wanted)
    for mine, theirs in zip(
        torch.autograd.grad(found, leaves, push), torch.autograd.grad(wanted, leaves, push), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


lengths = st.lists(st.integers(0, 13), min_size=1, max_size=3)
documents = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=3)
shapes = given(
    lengths,
    st.sampled_from(["right", "left"]),
    st.booleans(),
    st.integers(1, 8),
    st.sampled_from([0, 3]),
    st.booleans(),
)


@shapes
@settings(max_examples=40, deadline=None)
def test_padded_rows(lengths: list[int], side: str, causal: bool, chunk: int, logs: float, grouped: bool) -> None:
    layout = Layout.from_lengths(lengths, max(lengths) + 1, side)  # type: ignore[arg-type]
    same_with_gradients(drawn(layout, len(lengths), logs, group=1 + grouped), causal, chunk)


@given(documents, st.integers(0, 3), st.booleans(), st.integers(1, 8), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_documents(rows: list[list[int]], more: int, causal: bool, chunk: int, logs: float) -> None:
    layout = Layout.packed(rows, max(map(sum, rows)) + more)
    same_with_gradients(drawn(layout, len(rows), logs), causal, chunk)


def test_holes_of_padding() -> None:
    mask = torch.rand(3, 11, generator=torch.Generator().manual_seed(0)) < 0.6
    for causal in (False, True):
        same_with_gradients(drawn(Layout.from_mask(mask), 3, logs=2.0), causal, chunk=4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk", [4, 64])
def test_logs_far_apart_neither_overflow_nor_vanish(causal: bool, chunk: int) -> None:
    """Keys whose features differ by e^±300: with one common factor the early queries of this row would be 0/0."""
    layout = Layout.packed([[9, 8]])
    case = drawn(layout, 1, logs=1.0, dtype=torch.float32)
    log = torch.linspace(-300, 300, 17)[None, :, None].expand(1, 17, 2)
    for far in (log, -log):
        k = case.k._replace(log=far)
        found = linear_attention(case.q, k, case.v, layout, causal, chunk=chunk)
        exact = Case(*(Features(x.values.double(), None) for x in (case.q, k)), case.v.double(), layout)
        exact = exact._replace(k=exact.k._replace(log=far.double()), q=exact.q)
        torch.testing.assert_close(found.double(), defined(exact, causal), rtol=1e-4, atol=1e-5)


def test_nothing_to_see_gives_zero() -> None:
    case = drawn(Layout.full(4), 1)
    blind = case._replace(q=Features(torch.zeros_like(case.q.values)))
    assert torch.equal(linear_attention(*blind, causal=True), torch.zeros(1, 4, 4, E, dtype=torch.float64))
    nobody = drawn(Layout.from_lengths([0], 3), 1)
    assert not linear_attention(*nobody).any()


def test_what_stands_in_padding_does_not_matter() -> None:
    layout = Layout.from_lengths([3, 5], side="left")
    case = drawn(layout, 2, logs=1.0)
    wanted = linear_attention(*case, causal=True)
    hidden = ~layout.valid[..., None, None]
    spoilt = (x.detach().masked_fill(hidden, float("nan")) for x in (case.k.values, case.v))
    k, v = spoilt
    log = case.k.log.masked_fill(hidden[..., 0], float("nan"))
    torch.testing.assert_close(linear_attention(case.q, Features(k, log), v, layout, True), wanted)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(1, 4), st.sampled_from([0, 4]), st.booleans())
@settings(max_examples=40, deadline=None)
def test_steps_of_any_size_are_one_pass(sizes: list[int], chunk: int, logs: float, left: bool) -> None:
    total = sum(sizes)
    layout = Layout.from_lengths([total, max(1, total - 3)], side="left") if left else Layout.full(total)
    case, state = drawn(layout, 2, logs), LinearState()
    found = []
    for a, b in pairwise([0, *torch.tensor(sizes).cumsum(0).tolist()]):
        q, k = (Features(*(None if t is None else t[:, a:b] for t in x)) for x in (case.q, case.k))
        found.append(linear_attention(q, k, case.v[:, a:b], layout.slice(a, b), True, state, chunk))
    torch.testing.assert_close(torch.cat(found, 1), defined(case, True))
    numbers = 2 * 2 * D * (E + 1) + (2 * 2 if logs else 0)
    assert state.nbytes == 8 * numbers  # float64 here, and no more for longer rows


def test_rows_change_places_and_nothing_is_taken_back() -> None:
    case, state = drawn(Layout.full(6), 3, logs=1.0), LinearState()
    linear_attention(case.q, case.k, case.v, case.layout, True, state)
    sums, top = state.sums, state.top
    again = LinearState()
    again.restore(state.tensors())
    assert again.tensors().keys() == {"sums", "top"} and sum(again.parts.values()) == again.nbytes == state.nbytes
    state.reorder(torch.tensor([2, 0]))
    assert torch.equal(state.sums, sums[[2, 0]]) and torch.equal(state.top, top[[2, 0]])
    state.check_rewind(0)
    with pytest.raises(ValueError, match="can't rewind 2"):
        state.check_rewind(2)


@pytest.mark.parametrize(("layout", "causal"), [(Layout.packed([[2, 3]]), True), (Layout.full(5), False)])
def test_a_state_is_of_one_document_read_causally(layout: Layout, causal: bool) -> None:
    with pytest.raises(ValueError, match="one document a row"):
        linear_attention(*drawn(layout, 1), causal, LinearState())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_single_precision(dtype: torch.dtype) -> None:
    """A thousand tokens that weigh alike: a sum in half precision would stop growing at a few hundred."""
    layout, t = Layout.full(1000), 1000
    ones = Features(torch.ones(1, t, 1, 4))
    v = (torch.arange(t) % 2)[None, :, None, None].to(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        out = linear_attention(ones, ones, v, layout, causal=True)
    assert out.dtype == dtype
    assert abs(float(out[0, -1, 0, 0]) - 0.5) < 1e-3


@pytest.mark.parametrize("logs", [0.0, 3.0])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_long_rows_by_strips_are_what_they_are_at_once(
    padding: Literal["none", "left", "right"], logs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, gradients and the state that is left, with a state to begin with or without."""
    ends = [23] if padding == "none" else [23, 9]
    layout = Layout.full(23) if padding == "none" else Layout.from_lengths(ends, 23, padding)
    case, found = drawn(layout, len(ends), logs), []
    for strip in (1 << 20, 7):
        monkeypatch.setattr(linear, "STRIP", strip)
        state = LinearState()
        out = linear_attention(*case, True, state, 4)
        leaves = (case.q.values, case.k.values, case.v)
        gradients = torch.autograd.grad(out.square().sum(), leaves)
        found.append([out, *gradients, *state.tensors().values()])
        assert torch.equal(linear_attention(*case, True, None, 4), out)
    for whole, strips in zip(*found, strict=True):
        torch.testing.assert_close(whole, strips)


@pytest.mark.parametrize("causal", [False, True])
def test_padded_queries_leave_gradients_alone(causal: bool) -> None:
    layout, grads = Layout.from_lengths([9, 5], side="left"), []
    for filled in (0.0, float("nan")):
        case = drawn(layout, 2)
        q, k, v = (x.detach().clone() for x in (case.q.values, case.k.values, case.v))
        q[~layout.valid] = filled
        leaves = [x.requires_grad_() for x in (q, k, v)]
        linear_attention(Features(q, None), Features(k, None), v, layout, causal).square().sum().backward()
        grads.append([x.grad for x in leaves])
    torch.testing.assert_close(*grads)
