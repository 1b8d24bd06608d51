"""Linear attention and Performer as layers: equation, options, cost, training, decoding, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import qkv
from qkv.attention import tap
from qkv.attention.feature_maps import Elu1, Favor, FeatureMap, Relu
from qkv.attention.linear import LinearAttention
from qkv.attention.multi_head import Pass
from qkv.attention.performer import MultiHeadPerformer, Performer, redraw
from qkv.generation import generate
from qkv.kv_cache.full import SlotTables
from qkv.look import capture
from qkv.patterns.basic import Pattern, causal, documents, full, window
from qkv.positions.absolute import NoPosition
from qkv.positions.base import PositionModule, Widths
from qkv.positions.bias import ALiBi, T5Buckets
from qkv.positions.rotary import Rotary

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
def test_the_equation(features: FeatureMap, pattern: Pattern) -> None:
    spec = LinearAttention(n_heads=4, n_kv_heads=2, d_value=5, scale=0.7, features=features, pattern=pattern)
    module = layer(spec)
    x, run = torch.randn(2, T, M, dtype=torch.float64), Pass.over(qkv.Layout.full(T), PositionModule())
    torch.testing.assert_close(module(x, run), expected(module, x, pattern.mask(T)))
    assert spec.cost(M).parameters == sum(p.numel() for p in module.parameters())


def test_costs() -> None:
    """Beside the projections: features, sums over keys, and what queries make of them; linear in the length."""
    spec = Performer(n_heads=4, n_kv_heads=2, d_head=3, features=Favor(n_features=10))
    projections = 2 * T * (M * 12 + M * 2 * 6 + 12 * M)
    assert spec.cost(M, T).flops == projections + T * 6 * (2 * 3 * 10 + 2 * 10 * 4)
    assert spec.cost(M, 2 * T, pairs=4 * T * T).flops == 2 * spec.cost(M, T).flops
    assert LinearAttention(n_heads=4).cost(M, T).flops == 2 * T * 4 * M * M + T * 8 * 2 * 3 * 4
    assert spec.state_nbytes(M) == 4 * 2 * (10 * 4 + 1)


def test_json() -> None:
    spec = LinearAttention(n_heads=4, features=Relu(), pattern=causal() & documents())
    assert qkv.Mixer.from_dict(spec.to_dict()) == spec and spec.to_dict()["kind"] == "linear-attention"
    spec = qkv.Mixer.from_dict({"kind": "performer", "n_heads": 2, "features": {"kind": "favor", "n_features": 64}})
    assert spec == Performer(n_heads=2, features=Favor(n_features=64))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pattern": causal() & window(3)}, "full\\(\\) or causal\\(\\)"),
        ({"pattern": causal() | documents()}, "full\\(\\) or causal\\(\\)"),
        ({"dropout": 0.1}, "dropout belongs to attention"),
        ({"softcap": 5.0}, "softcap belongs to attention"),
        ({"backend": "sdpa"}, "backend belongs to attention"),
        ({"n_kv_heads": 3}, "does not divide"),
    ],
)
@pytest.mark.parametrize("kind", [LinearAttention, Performer])
def test_what_has_no_place(kind: type[LinearAttention], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(n_heads=4, **options)


@pytest.mark.parametrize("position", [ALiBi(), T5Buckets()])
@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_biases_are_refused(mixer: LinearAttention, position: Any) -> None:
    widths = Widths(M, 4, 3, None)
    run = Pass.over(qkv.Layout.full(T), position.module(widths))
    with pytest.raises(ValueError, match="positions that work are none, sinusoidal, learned and rotary"):
        layer(mixer)(torch.zeros(1, T, M, dtype=torch.float64), run)


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda m: m.kind)
def test_crossing_and_decoding_what_is_not_causal_are_refused(mixer: LinearAttention) -> None:
    with pytest.raises(ValueError, match="to cross, take attention"):
        mixer.module(M, cross=True)
    with pytest.raises(ValueError, match=r"decodes with pattern=causal\(\)"):
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
    with tap.record() as requests:
        model(torch.zeros(1, 5, dtype=torch.long))
    assert requests == [] and capture.attention(model, torch.zeros(1, 5, dtype=torch.long)) == []


def test_random_directions_are_saved_and_redrawn() -> None:
    spec = tiny(Performer(n_heads=4, pattern=causal(), features=Favor(n_features=16)))
    model, other = qkv.build(spec).eval(), qkv.build(spec, seed=1).eval()
    name = "decoder.blocks.1.attention.directions"
    before = model.state_dict()[name].clone()
    assert torch.equal(before, other.state_dict()[name]), "drawn by the features' seed and the layer's name"
    assert not torch.equal(before, model.state_dict()[name.replace("1", "0")])
    assert redraw(model, seed=5) == 2
    assert not torch.equal(before, model.state_dict()[name])
    ids = torch.zeros(1, 4, dtype=torch.long)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids), other(ids)), "what was redrawn is saved with the model"
    assert name not in dict(model.named_parameters())
    meta = qkv.build(spec, device="meta")
    assert meta.state_dict()[name].is_meta
    assert isinstance(model.decoder.block(0).attention, MultiHeadPerformer)


def test_memory_is_known_before() -> None:
    from qkv.cost.count import Shape
    from qkv.cost.memory import Plan, predict

    for mixer in MIXERS:
        for packed in (False, True):
            assert predict(tiny(mixer), Shape(2, 40), Plan(packed=packed)) is not None
