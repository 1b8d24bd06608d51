"""What turns scores into weights: each kind against its equation, in any attention, with caches and taps; and sinks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import qkv
from qkv.nn.attention import tap
from qkv.nn.attention.attend import attend
from qkv.nn.attention.weighting import Entmax, ReLU, Sigmoid, Softmax, Sparsemax, SquaredReLU, Weighting, visible
from qkv.nn.kernels.backends import BACKENDS
from qkv.nn.kv_cache.kinds import named
from qkv.nn.patterns.basic import causal, window

KINDS = [Sigmoid(), Sigmoid(bias=-1.0), ReLU(), SquaredReLU(), Entmax(), Entmax(alpha=1.2), Sparsemax()]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_sorting(z: Tensor, alpha: float) -> Tensor:
    """Sparsemax (Martins & Astudillo 2016, alg. 1) and 1.5-entmax (Peters et al. 2019, alg. 2) of one row."""
    if alpha == 1.5:
        z = z / 2
    x = z.sort(descending=True).values
    for k in range(len(x), 0, -1):
        if alpha == 2:
            tau = (x[:k].sum() - 1) / k
        else:
            inside = 1 - k * x[:k].var(correction=0)
            if inside < 0:
                continue
            tau = x[:k].mean() - (inside / k).sqrt()
        if tau < x[k - 1]:
            break
    return (z - tau).clamp(min=0) ** (1 / (alpha - 1))


def by_the_equation(how: Weighting, s: Tensor) -> Tensor:
    """Of the scores of one query that its mask allows."""
    match how.kind:
        case "sigmoid":
            return torch.sigmoid(s + (-math.log(len(s)) if how.bias is None else how.bias))
        case "relu" | "squared-relu":
            return s.clamp(min=0) ** how.power / len(s)
        case "entmax" | "sparsemax" if how.alpha in (1.5, 2.0):
            return by_sorting(s, how.alpha)
    low, high = s.max() * (how.alpha - 1) - 1, s.max() * (how.alpha - 1)
    for _ in range(200):
        middle = (low + high) / 2
        p = ((how.alpha - 1) * s - middle).clamp(min=0) ** (1 / (how.alpha - 1))
        low, high = (middle, high) if p.sum() > 1 else (low, middle)
    return p


@pytest.mark.parametrize("how", KINDS, ids=str)
def test_each_kind_is_its_equation(how: Weighting) -> None:
    q, k, v = (randn(2, 7, 3, 4, seed=i) for i in range(3))
    out = attend(q, k, v, pattern=causal(), weighting=how)
    for t in range(7):
        s = torch.einsum("bhd,bshd->bhs", q[:, t], k[:, : t + 1]) / 2
        w = torch.stack([torch.stack([by_the_equation(how, row) for row in head]) for head in s])
        torch.testing.assert_close(out[:, t], torch.einsum("bhs,bshe->bhe", w, v[:, : t + 1]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("how", [*KINDS, Softmax()], ids=str)
def test_gradients_match_differences(how: Weighting) -> None:
    s = (randn(1, 1, 3, 5) + 0.3).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: how.weights(s, None), s, eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_entmax_is_sparse_and_sums_to_one(alpha: float) -> None:
    for dtype in (torch.float64, torch.float32):
        w = Entmax(alpha=alpha).weights(5 * randn(2, 3, 4, 50).to(dtype), None)
        torch.testing.assert_close(w.sum(-1), torch.ones(2, 3, 4, dtype=dtype), rtol=1e-5, atol=0)
        assert (w == 0).double().mean() > 0.7


@pytest.mark.parametrize("how", KINDS, ids=str)
def test_any_attention_takes_it(how: Weighting) -> None:
    """Steps as one pass, padding without effect, weights in the tap, a loss that falls."""
    spec = qkv.preset("gpt", vocab_size=20, d_model=16, n_layers=2, n_heads=4, position="rotary")
    spec = spec.replace({"decoder.blocks.*.attention.weighting": how, "decoder.blocks.*.attention.n_kv_heads": 2})
    spec = spec.replace({"decoder.blocks.1.attention.pattern": causal() & window(4)})
    assert type(spec).from_json(spec.to_json()) == spec
    model = qkv.build(spec, dtype=torch.float64).eval()
    ids = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), tap.record_attention() as requests:
        whole = model(ids)
    with torch.no_grad():
        for cache in ("full", "paged"):
            state = model.start(2, cache=named(cache))
            steps = torch.cat(
                [model.step(ids[:, :3], state)[:, None]]
                + [model.step(ids[:, t : t + 1], state)[:, None] for t in range(3, 9)],
                1,
            )
            torch.testing.assert_close(steps, whole[:, 2:])
        padded = model(torch.cat([ids[:, :2], ids], 1), layout=qkv.Layout.from_lengths([9, 9], 11, "left"))
    torch.testing.assert_close(padded[:, 2:], whole)
    request = requests[0]
    weights = tap.weights(request)
    out = torch.einsum("bhts,bshe->bthe", weights, request.v.repeat_interleave(2, 2))
    torch.testing.assert_close(out, attend(request.q, request.k, request.v, pattern=causal(), weighting=how))
    torch.testing.assert_close(tap.weights(request, heads=[3], rows=[5]), weights[:, [3]][:, :, [5]])
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(15):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.2


def test_other_backends_refuse_by_name() -> None:
    q = randn(1, 4, 1, 2)
    for name in set(BACKENDS) - {"reference"}:
        with pytest.raises(ValueError, match="only 'reference' has the weighting 'sigmoid'"):
            attend(q, q, q, weighting=Sigmoid(), backend=name)
    with pytest.raises(ValueError, match="a log-sum-exp belongs to the soft-max"):
        attend(q, q, q, weighting=Sigmoid(), return_lse=True)
    with pytest.raises(ValueError, match="has its own weights"):
        qkv.LinearAttention(n_heads=2, weighting="sigmoid")


def test_a_kind_from_outside() -> None:
    class Linear(Weighting, kind="test-linear"):
        """Scores as they are, divided by how many there are."""

        def weights(self, scores, mask):
            return scores / visible(scores, mask)

    spec = qkv.preset("gpt", vocab_size=20, d_model=16, n_layers=1, n_heads=2)
    spec = spec.replace({"decoder.blocks.*.attention.weighting": {"kind": "test-linear"}})
    model = qkv.build(type(spec).from_json(spec.to_json())).eval()
    assert model.generate(torch.randint(0, 20, (2, 4)), max_new_tokens=3).shape == (2, 7)


# -- sinks -----------------------------------------------------------------------------------------------------------------


def with_sinks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The sink as one more key, whose value is nothing."""
    s = torch.einsum("bthd,bshd->bhts", q, k) / math.sqrt(q.shape[-1])
    s = torch.cat([s.masked_fill(~mask, -torch.inf), sinks[None, :, None, None].expand(*s.shape[:3], 1)], -1)
    w = s.softmax(-1)[..., :-1]
    return torch.einsum("bhts,bshe->bthe", w, v), s.logsumexp(-1)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
def test_sinks_are_a_key_without_value(backend: str) -> None:
    q, k, v = (randn(2, 9, 4, 8, seed=i).requires_grad_() for i in range(3))
    sinks, mask = randn(4, seed=3).requires_grad_(), torch.ones(9, 9, dtype=torch.bool).tril()
    wanted, lse = with_sinks(q, k, v, sinks, mask)
    out, got = attend(q, k, v, pattern=causal(), sinks=sinks, return_lse=True, backend=backend)
    torch.testing.assert_close(got, lse)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(attend(q, k, v, pattern=causal(), sinks=sinks, backend=backend), wanted)
    grad = randn(*out.shape, seed=4)
    grads = torch.autograd.grad(out, (q, k, v, sinks), grad)
    torch.testing.assert_close(grads, torch.autograd.grad(wanted, (q, k, v, sinks), grad))


def test_backends_without_a_log_sum_exp_refuse_sinks() -> None:
    q = randn(1, 4, 2, 2)
    with pytest.raises(ValueError, match="log-sum-exp"):
        attend(q, q, q, sinks=torch.zeros(2), backend="sdpa")
    with pytest.raises(ValueError, match="one logit for each of 2 heads"):
        attend(q, q, q, sinks=torch.zeros(3))
    with pytest.raises(ValueError, match="sink belongs to the soft-max"):
        qkv.Attention(n_heads=2, weighting="sigmoid", sink="learned")


@pytest.mark.parametrize("sink", ["learned", "zero"])
def test_attention_with_a_sink(sink: str) -> None:
    spec = qkv.preset("gpt", vocab_size=20, d_model=16, n_layers=2, n_heads=4, position="rotary")
    spec = spec.replace({"decoder.blocks.*.attention.sink": sink, "decoder.blocks.*.attention.n_kv_heads": 2})
    model = qkv.build(spec, dtype=torch.float64).eval()
    assert sum(p.numel() for p in model.parameters()) == spec.n_parameters
    attention = model.decoder.blocks[0].attention
    assert ("sinks" in attention.state_dict()) == (sink == "learned")
    if sink == "learned":
        with torch.no_grad():
            attention.sinks.copy_(randn(4))
    ids = torch.randint(0, 20, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), tap.record_attention() as requests:
        whole = model(ids)
    for cache in ("full", "paged"):
        state = model.start(2, cache=named(cache))
        with torch.no_grad():
            steps = torch.stack([model.step(ids[:, t : t + 1], state) for t in range(9)], 1)
        torch.testing.assert_close(steps, whole)
    r = requests[0]
    weights = tap.weights(r)
    out = torch.einsum("bhts,bshe->bthe", weights, r.v.repeat_interleave(2, 2))
    torch.testing.assert_close(out, attend(r.q, r.k, r.v, pattern=causal(), sinks=attention.sinks))
    assert (weights.sum(-1) < 1).all()
    torch.testing.assert_close(tap.weights(r, heads=[2], rows=[1, 4]), weights[:, [2]][:, :, [1, 4]])
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in model.named_parameters() if "sinks" in n)


def test_sinks_match_gpt_oss() -> None:
    modeling = pytest.importorskip("transformers.models.gpt_oss.modeling_gpt_oss")
    q, k, v, sinks = randn(2, 6, 4, 8), randn(2, 6, 2, 8, seed=1), randn(2, 6, 2, 8, seed=2), randn(4, seed=3)
    module = torch.nn.Module()
    module.sinks, module.num_key_value_groups, module.training = sinks, 2, False
    hidden = torch.zeros(6, 6, dtype=torch.float64).masked_fill(~torch.ones(6, 6, dtype=torch.bool).tril(), -1e30)
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    wanted, weights = modeling.eager_attention_forward(module, *heads_first, hidden[None, None], 8**-0.5)
    with tap.record_attention() as requests:
        out = attend(q, k, v, pattern=causal(), sinks=sinks)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(tap.weights(requests[0]), weights)
