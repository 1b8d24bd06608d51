"""Scores: each against its equation, in any attention, with caches and taps; and attention pooling over plain keys."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import qkv
from attention_pooling import KernelRegression, main, pool
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.attention.scores import Additive, Concat, Dot, ExactMatch, Gaussian, General, ScaledDot, Score

KEYS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
VALUES = torch.tensor([4.0, 6.0, 6.0])
QUERY = torch.tensor([0.5, 0.0])
SCORES = [ScaledDot(), Dot(), General(), Additive(d_a=6), Concat(d_a=6), Gaussian(sigma=1.7, learned=True)]


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_the_equation(score: Score, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Of one query and one key, of head 0."""
    p = {name: value[0] for name, value in module.named_parameters()}
    match score.kind:
        case "scaled-dot":
            return q @ k / math.sqrt(len(k))
        case "dot":
            return q @ k
        case "general":
            return q @ p["weight"] @ k
        case "additive":
            return p["v"] @ torch.tanh(p["query"] @ q + p["key"] @ k)
        case "concat":
            return p["v"] @ torch.tanh(p["weight"] @ torch.cat([q, k]))
        case "gaussian":
            return -(q - k).square().sum() / (2 * score.sigma**2)
    raise AssertionError(score.kind)


@pytest.mark.parametrize("score", SCORES, ids=lambda s: s.kind)
def test_pooling_weighs_values_by_the_score(score: Score) -> None:
    module = score.scorer(3).double()
    q, k, v = randn(4, 3, seed=1), randn(6, 3, seed=2), randn(6, 2, seed=3)
    scores = torch.stack([torch.stack([by_the_equation(score, module, a, b) for b in k]) for a in q])
    torch.testing.assert_close(pool(q, k, v, module), scores.softmax(-1) @ v, rtol=1e-6, atol=1e-7)


def test_pooling_gives_the_numbers_of_the_textbook() -> None:
    assert float(pool(QUERY, KEYS, VALUES, Gaussian())) == pytest.approx(5.0963, abs=5e-5)
    assert float(pool(QUERY, KEYS, VALUES, "dot")) == pytest.approx(5.2327, abs=5e-5)


def test_a_lookup_returns_exactly_one_value() -> None:
    for key, value in zip(KEYS, [4.0, 6.5, 7.0], strict=True):
        assert float(pool(key, KEYS, torch.tensor([4.0, 6.5, 7.0]), "exact-match")) == value
    assert float(pool(QUERY, KEYS, VALUES, "exact-match")) == 0.0  # no key is equal
    twice = torch.cat([KEYS, KEYS[:1]])
    assert float(pool(KEYS[0], twice, torch.tensor([4.0, 6.0, 6.0, 8.0]), "exact-match")) == 6.0


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.booleans(), st.booleans())
@settings(max_examples=30, deadline=None)
def test_pooling_keeps_the_shapes_it_is_given(t: int, s: int, d: int, batched: bool, numbers: bool) -> None:
    lead = (3,) if batched else ()
    q, k, v = randn(*lead, t, d), randn(*lead, s, d), randn(*lead, s, *(() if numbers else (2,)))
    out = pool(q, k, v, "gaussian")
    assert out.shape == (*lead, t, *v.shape[len(lead) + 1 :])
    assert bool((out <= v.amax(len(lead)).unsqueeze(len(lead)) + 1e-12).all())
    torch.testing.assert_close(pool(q[..., 0, :], k, v, "gaussian"), out[..., 0, :] if not numbers else out[..., 0])


@pytest.mark.parametrize("name", ["general", "additive", "concat"])
def test_unequal_widths(name: str) -> None:
    module = Score.from_dict({"kind": name}).scorer(3, 2)
    assert pool(torch.randn(4, 3), torch.randn(5, 2), torch.randn(5), module).shape == (4,)


@pytest.mark.parametrize("name", ["dot", "scaled-dot", "gaussian", "exact-match"])
def test_widths_that_can_not_be_compared(name: str) -> None:
    message = "of one width, not 3 and 2; scores for different widths are general, additive, concat"
    with pytest.raises(ValueError, match=message):
        pool(torch.randn(4, 3), torch.randn(5, 2), torch.randn(5), name)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"give its module, Additive\(\)\.scorer\(2, 2\)"):
        pool(QUERY, KEYS, VALUES, "additive")
    with pytest.raises(ValueError, match="did you mean 'gaussian'"):
        pool(QUERY, KEYS, VALUES, "gausian")
    with pytest.raises(ValueError, match="every key has a value"):
        pool(QUERY, KEYS, VALUES[:2])
    with pytest.raises(ValueError, match="at least two"):
        KernelRegression(KEYS[:1], VALUES[:1])
    with pytest.raises(ValueError, match="linear-attention has scaled dot products only"):
        qkv.LinearAttention(n_heads=2, score="additive")
    with pytest.raises(ValueError, match="scale belongs to scaled dot products"):
        qkv.Attention(n_heads=2, score="dot", scale=0.5)


def test_a_kernels_width_is_learned() -> None:
    """On a fast sine with little noise the best width is small, on a slow one larger; both beat a width that is far off."""
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0, 6, 80)[:, None]
    noise = 0.2 * torch.randn(80, generator=generator)
    found = []
    for speed in (4.0, 0.5):
        y = torch.sin(speed * x[:, 0]) + noise
        regression = KernelRegression(x, y)
        error = regression.fit()
        found.append(regression.sigma)
        others = ~torch.eye(80, dtype=torch.bool)
        for sigma in (0.01, 5.0):
            assert error < (pool(x, x, y, Gaussian(sigma=sigma), mask=others) - y).square().mean()
    assert found[0] < 0.5 * found[1]


def test_the_example_prints_the_numbers_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out.split("\n")[:4] == ["5.0963", "5.2327", "6.0", "True torch.Size([1])"]


# -- in attention ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("score", [*SCORES, ExactMatch()], ids=lambda s: s.kind)
def test_any_attention_takes_it(score: Score, kv_heads: int) -> None:
    """Exact parameters, steps as one pass, padding without effect, weights for the heads and rows that are asked for."""
    spec = qkv.preset("gpt", vocab_size=20, d_model=16, n_layers=2, n_heads=4, position="rotary")
    spec = spec.replace({"decoder.blocks.*.attention.score": score, "decoder.blocks.*.attention.n_kv_heads": kv_heads})
    assert type(spec).from_json(spec.to_json()) == spec
    model = qkv.build(spec, dtype=torch.float64).eval()
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters
    ids = torch.randint(0, 20, (2, 7), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), tap.record_attention() as requests:
        whole = model(ids)
    with torch.no_grad():
        cache = model.start(2)
        steps = torch.stack([model.step(ids[:, t : t + 1], cache) for t in range(7)], 1)
        padded = model(torch.cat([ids[:, :2], ids], 1), layout=qkv.Layout.from_lengths([7, 7], 9, "left"))
    torch.testing.assert_close(steps, whole)
    torch.testing.assert_close(padded[:, 2:], whole)
    all_of_it = tap.weights(requests[1])
    torch.testing.assert_close(tap.weights(requests[1], heads=[1, 3], rows=[2, 6]), all_of_it[:, [1, 3]][:, :, [2, 6]])
    model(ids, labels=ids).loss.backward()
    without = ("q.", "k.") if score.kind == "exact-match" else ()  # what equals what is no matter of degree
    asked = {name for name, p in model.named_parameters() if not any(f"attention.{part}" in name for part in without)}
    assert all(p.grad is not None for name, p in model.named_parameters() if name in asked)


def test_keys_of_a_memory_are_made_once() -> None:
    """What a cache keeps of a source are W_h h, as wide as the score."""
    spec = qkv.preset("transformer", vocab_size=20, d_model=16, n_layers=1, n_heads=2)
    spec = spec.replace({"decoder.blocks.*.cross.score": {"kind": "additive", "d_a": 3}})
    model = qkv.build(spec).eval()
    cache = model.start(source=torch.randint(0, 20, (2, 5)))
    assert cache.cross[0].keys_values[0].shape == (2, 5, 2, 3)


def test_named_backends_refuse() -> None:
    q = randn(1, 4, 1, 2)
    comparison = Gaussian().module(2).comparison()
    for name in ("sdpa", "tiled", "flex"):
        with pytest.raises(ValueError, match="it computes dot products, and only 'reference' has the score Distance"):
            attend(q, q, q, score=comparison, backend=name)
    torch.testing.assert_close(
        attend(q, q, q, score=comparison), attend(q, q, q, score=comparison, backend="reference")
    )


def test_dot_products_keep_their_kernels() -> None:
    assert General().module(4).comparison() is None and Dot().module(4).comparison() is None
