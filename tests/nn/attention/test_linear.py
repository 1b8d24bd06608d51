"""Linear attention against its definition, pair by pair in float64: chunks, documents, padding, logs; layers, Performer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import qkv
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.look import attention_maps
from qkv.nn.attention import linear, tap
from qkv.nn.attention.feature_maps import Elu1, Favor, FeatureMap, Features, Relu
from qkv.nn.attention.linear import LinearAttention, LinearState, linear_attention
from qkv.nn.attention.mixer import Pass
from qkv.nn.attention.performer import Performer
from qkv.nn.kv_cache.full import SlotTables
from qkv.nn.patterns.basic import Pattern, causal, documents, full, window
from qkv.nn.positions.absolute import NoPosition
from qkv.nn.positions.base import PositionModule, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.nn.positions.rotary import Rotary

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
packed_rows = st.lists(st.lists(st.integers(1, 7), min_size=1, max_size=4), min_size=1, max_size=3)
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


@given(packed_rows, st.integers(0, 3), st.booleans(), st.integers(1, 8), st.sampled_from([0, 3]))
@settings(max_examples=60, deadline=None)
def test_documents_do_not_reach_one_another(
    rows: list[list[int]], more: int, causal: bool, chunk: int, logs: float
) -> None:
    layout = Layout.packed(rows, max(map(sum, rows)) + more)
    same_with_gradients(drawn(layout, len(rows), logs), causal, chunk)


def test_holes_of_padding() -> None:
    mask = torch.rand(3, 11, generator=torch.Generator().manual_seed(0)) < 0.6
    for ahead in (True, False):
        same_with_gradients(drawn(Layout.from_mask(mask), 3, logs=2.0), not ahead, chunk=4)


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


# -- the layer ---------------------------------------------------------------------------------------------------------


M, T = 12, 11
MIXERS = [LinearAttention(n_heads=4, pattern=causal()), Performer(n_heads=4, pattern=causal())]


def layer(spec: LinearAttention) -> Any:
    module = spec.module(M, name="decoder.blocks.0.attention").double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


def expected(module: Any, x: Tensor, mask: Tensor) -> Tensor:
    """The weights of all pairs, from the layer's own projections."""
    q, k, v = (f(x).unflatten(-1, (n, -1)) for f, n in ((module.q, 4), (module.k, 2), (module.v, 2)))
    phi = [module.features.features(t * module.root, module.directions) for t in (q, k)]
    q, k = (f.values if f.log is None else f.values * f.log.exp()[..., None] for f in phi)
    weights = torch.einsum("bthr,bshr->bhts", q, k.repeat_interleave(2, 2)) * mask
    out = torch.einsum("bhts,bshe->bthe", weights / weights.sum(-1, keepdim=True), v.repeat_interleave(2, 2))
    return module.out(out.flatten(-2))


@pytest.mark.parametrize("features", [Elu1(), Favor(n_features=9)])
@pytest.mark.parametrize("pattern", [full(), causal()])
def test_outputs_match_the_equation(features: FeatureMap, pattern: Pattern) -> None:
    spec = LinearAttention(n_heads=4, n_kv_heads=2, d_value=5, scale=0.7, features=features, pattern=pattern)
    module = layer(spec)
    x, run = torch.randn(2, T, M, dtype=torch.float64), Pass.over(qkv.Layout.full(T), PositionModule())
    torch.testing.assert_close(module(x, run), expected(module, x, pattern.mask(T)))
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())


def test_costs_are_linear_in_the_length() -> None:
    """Beside the projections: features, sums over keys, and what queries make of them; linear in the length."""
    spec = Performer(n_heads=4, n_kv_heads=2, d_head=3, features=Favor(n_features=10))
    projections = 2 * T * (M * 12 + M * 2 * 6 + 12 * M)
    assert spec.cost(M, T).flops == projections + T * 6 * (2 * 3 * 10 + 2 * 10 * 4)
    assert spec.cost(M, 2 * T, pairs=4 * T * T).flops == 2 * spec.cost(M, T).flops
    assert LinearAttention(n_heads=4).cost(M, T).flops == 2 * T * 4 * M * M + T * 8 * 2 * 3 * 4
    assert spec.state_parts(M, T, 8) == {"sums over tokens": 8 * 2 * (10 * 4 + 1)}  # a model in fp64 sums in fp64
    assert spec.state_parts(M, T, 2) == spec.state_parts(M, T, 4) == {"sums over tokens": 4 * 2 * (10 * 4 + 1)}


def test_a_spec_survives_json() -> None:
    spec = LinearAttention(n_heads=4, features=Relu(), pattern=causal() & documents())
    assert qkv.Mixer.from_dict(spec.to_dict()) == spec and spec.to_dict()["kind"] == "linear-attention"
    spec = qkv.Mixer.from_dict({"kind": "performer", "n_heads": 2, "features": {"kind": "favor", "n_features": 64}})
    assert spec == Performer(n_heads=2, features=Favor(n_features=64))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pattern": causal() & window(3)}, "full\\(\\) or causal\\(\\)"),
        ({"pattern": causal() | documents()}, "full\\(\\) or causal\\(\\)"),
        ({"dropout": 0.1}, "has no dropout, which belongs to attention"),
        ({"softcap": 5.0}, "has no softcap, which belongs to attention"),
        ({"backend": "sdpa"}, "has no backend, which belongs to attention"),
        ({"n_kv_heads": 3}, "does not divide"),
    ],
)
@pytest.mark.parametrize("kind", [LinearAttention, Performer])
def test_options_without_a_meaning_are_refused(kind: type[LinearAttention], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(n_heads=4, **options)


@pytest.mark.parametrize("position", [ALiBi(), T5Buckets()])
@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_biases_are_refused(mixer: LinearAttention, position: Any) -> None:
    widths = Widths(M, 4, 3, None)
    run = Pass.over(qkv.Layout.full(T), position.module(widths))
    with pytest.raises(ValueError, match="take none, sinusoidal, learned or rotary positions"):
        layer(mixer)(torch.zeros(1, T, M, dtype=torch.float64), run)


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_crossing_and_decoding_what_is_not_causal_are_refused(mixer: LinearAttention) -> None:
    with pytest.raises(ValueError, match="for cross-attention take attention"):
        mixer.module(M, cross=True)
    with pytest.raises(ValueError, match=r"decodes token by token with pattern=causal\(\) only"):
        mixer.replace(pattern=full()).state(SlotTables())


def tiny(mixer: LinearAttention, position: Any = None) -> Any:
    spec = qkv.preset("gpt2", n_layers=2, d_model=32, n_heads=4, vocab_size=19, max_positions=64)
    return spec.replace({"decoder.position": position or NoPosition(), "decoder.blocks.*.attention": mixer})


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_training_lowers_the_loss(mixer: LinearAttention) -> None:
    model = qkv.build(tiny(mixer, Rotary())).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ids = (torch.arange(24)[None] * torch.tensor([[1], [2], [5], [7]])) % 19
    losses = []
    for _ in range(40):
        loss = model(ids[:, :-1], labels=ids[:, 1:]).loss / (4 * 23)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


PROMPTS = [[4, 5, 6, 7, 8, 9, 10], [11], [12, 13, 14], [3, 3]]


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_generating_is_what_whole_passes_give(mixer: LinearAttention) -> None:
    """Greedy: the likeliest token after each. Beams: what is reported is what the model gives those tokens."""
    model = qkv.build(tiny(mixer, Rotary()), dtype=torch.float64, seed=1).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3.0)  # peaked enough that sequences differ
    greedy = generate(model, PROMPTS, max_new_tokens=10, eos_id=2)
    for prompt, new in zip(PROMPTS, greedy.best, strict=True):
        logits = model(torch.tensor([[*prompt, *new]]))[0, len(prompt) - 1 : -1]
        assert logits.argmax(-1).tolist() == new
    beams = generate(model, PROMPTS, max_new_tokens=10, eos_id=2, num_beams=4, length_penalty=0.0)
    for prompt, new, found in zip(PROMPTS, beams.best, beams.scores, strict=True):
        logits = model(torch.tensor([[*prompt, *new]]))[0, len(prompt) - 1 : -1]
        likely = logits.log_softmax(-1).gather(1, torch.tensor(new)[:, None]).sum()
        assert found[0] == pytest.approx(likely.item(), abs=1e-5)


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_a_tap_sees_no_weights(mixer: LinearAttention) -> None:
    model = qkv.build(tiny(mixer))
    with tap.record_attention() as requests:
        model(torch.zeros(1, 5, dtype=torch.long))
    assert requests == [] and attention_maps.attention(model, torch.zeros(1, 5, dtype=torch.long)) == []


def test_memory_is_predicted_without_running() -> None:
    from qkv.nn.cost.flops import BatchShape
    from qkv.nn.cost.memory import MemorySettings, predict

    for mixer in MIXERS:
        for packed in (False, True):
            assert predict(tiny(mixer), BatchShape(2, 40), MemorySettings(packed=packed)) is not None
