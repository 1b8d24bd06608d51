"""LoRA: what is trained, what is not, and that merging changes nothing."""

from __future__ import annotations

import math

import pytest
import torch

import qkv
import qkv.io.families
from qkv.nn.layers.lora import LoRA, LoRALinear, adapt, fold, folded, layers, merge, trained, unmerge
from qkv.training.optimizers import AdamW

IDS = torch.randint(0, 60, (2, 9), generator=torch.Generator().manual_seed(0))


def model(name: str = "gpt2", **sizes: object) -> qkv.TransformerModel:
    small = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "vocab_size": 60, **sizes}
    return qkv.build(qkv.preset(name, **small)).eval()


def stirred(adapted: qkv.TransformerModel) -> qkv.TransformerModel:
    """With an adapter that does something."""
    generator = torch.Generator().manual_seed(1)
    for layer in layers(adapted).values():
        layer.lora_b.data.normal_(0, 0.2, generator=generator)
    return adapted


def test_outputs_match_the_equation():
    m = stirred(adapt(model(), LoRA(rank=3, alpha=5.0, layers="*.attention.q")))
    layer = layers(m)["decoder.blocks.1.attention.q"]
    x = torch.randn(2, 4, 32)
    expected = x @ (layer.weight + 5 / 3 * layer.lora_b @ layer.lora_a).T + layer.bias
    torch.testing.assert_close(layer(x), expected, atol=1e-6, rtol=1e-5)
    stable = stirred(adapt(model(), LoRA(rank=3, alpha=5.0, rank_stabilized=True)))
    assert all(math.isclose(layer.scale, 5 / math.sqrt(3)) for layer in layers(stable).values())


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert-base", "t5-small", "mixtral-8x7b"])
def test_an_adapted_model_begins_as_it_was_and_merging_changes_nothing(name: str):
    sizes = {"n_experts": 4, "n_kv_heads": 2} if name == "mixtral-8x7b" else {}
    m = model(name, **sizes).double()  # in single precision T5, which scales no scores, shows its rounding
    more = (IDS,) if m.is_encoder_decoder else ()
    with torch.no_grad():
        before = m(IDS, *more)
        assert torch.equal(adapt(m, LoRA(rank=4))(IDS, *more), before)
        adapted = stirred(m).double()(IDS, *more)
        assert (adapted - before).abs().max() > 1e-3
        merge(m)
        merge(m)  # once is enough
        torch.testing.assert_close(m(IDS, *more), adapted, atol=1e-12, rtol=1e-10)
        unmerge(m)
        torch.testing.assert_close(m(IDS, *more), adapted, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(fold(m)(IDS, *more), adapted, atol=1e-6, rtol=1e-5)
    assert not layers(m) and trained(m) is None and all(p.requires_grad for p in m.parameters())


def test_only_the_adapter_trains():
    m = adapt(model(), LoRA(rank=2, layers=("*.attention.[qv]", "*.up"), train="*.norm.bias"))
    before = {name: p.detach().clone() for name, p in m.named_parameters()}
    optimizer = AdamW(lr=0.1).build(m)
    for _ in range(2):  # A moves once B is no longer 0
        m(IDS, labels=IDS).loss.backward()
        optimizer.step()
    moved = {name for name, p in m.named_parameters() if not torch.equal(p, before[name])}
    assert moved == trained(m) == {name for name, p in m.named_parameters() if p.requires_grad}
    assert {name.rpartition(".")[2] for name in moved} == {"lora_a", "lora_b", "bias"}
    assert m.head is not None and m.head.weight is m.decoder.embedding.weight  # type: ignore[union-attr]
    assert len(optimizer.state) == len(moved)


def test_a_context_without_the_adapter_leaves_no_trace():
    m = stirred(adapt(model(), LoRA()))
    before = {name: t.clone() for name, t in m.state_dict().items()}
    expected = m(IDS)
    with folded(m):
        assert not layers(m) and m.state_dict().keys() == model().state_dict().keys()
        torch.testing.assert_close(m(IDS), expected, atol=1e-6, rtol=1e-5)
    assert all(torch.equal(t, before[name]) for name, t in m.state_dict().items())
    assert isinstance(m.adapter, LoRA)


@pytest.mark.parametrize("way", ["recompute", "autocast", "compiled"])
def test_gradients_are_the_same_recomputed_under_autocast_and_compiled(way: str):
    def gradients(m: qkv.TransformerModel, run: object) -> dict[str, torch.Tensor]:
        m.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            run(IDS, labels=IDS).loss.backward()  # type: ignore[operator]
        return {name: p.grad.clone() for name, p in m.named_parameters() if p.grad is not None}

    m = stirred(adapt(model(dropout=0.0), LoRA(layers="*.attention.*"))).train()
    m.requires_grad_(False)
    for layer in layers(m).values():
        layer.lora_a.requires_grad_(True)
        layer.lora_b.requires_grad_(True)
    m(IDS, labels=IDS).loss.backward()
    plain = {name: p.grad.clone() for name, p in m.named_parameters() if p.grad is not None}
    if way == "recompute":
        m.recompute("blocks")
    found = gradients(m, torch.compile(m, backend="aot_eager") if way == "compiled" else m)
    assert found.keys() == plain.keys() == trained(m)
    tolerance = 0.05 if way == "autocast" else 1e-5
    for name, gradient in plain.items():
        assert (found[name] - gradient).norm() <= tolerance * gradient.norm() + 1e-6, name


def test_dropout_is_of_what_the_adapter_reads_and_only_in_training():
    m = stirred(adapt(model(), LoRA(dropout=0.5, layers="*.attention.q"))).train()
    assert not torch.equal(m(IDS), m(IDS))
    assert torch.equal(m.eval()(IDS), m(IDS))
    layer = LoRALinear(layers(m)["decoder.blocks.0.attention.q"], (2, 1.0), 0.5).train()
    torch.nn.init.ones_(layer.lora_a)
    torch.nn.init.zeros_(layer.lora_b)
    assert torch.equal(
        layer(torch.ones(1, 32)), layer(torch.ones(1, 32))
    )  # B is 0: what is dropped makes no difference


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        ({"layers": "*.attention.query"}, "matches no linear layer"),
        ({"layers": "head"}, "output heads and experts"),
        ({"train": "*.nrm.*"}, "matches no parameter"),
        ({"rank": 0}, "rank"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_what_cannot_be_adapted_is_said(adapter: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        adapt(model(), LoRA(**adapter))  # type: ignore[arg-type]


def test_one_adapter_at_a_time_and_a_refusal_changes_nothing():
    m = adapt(model(), LoRA())
    with pytest.raises(ValueError, match="already"):
        adapt(m, LoRA())
    fresh = model()
    with pytest.raises(ValueError, match="matches no parameter"):
        adapt(fresh, LoRA(train="nothing"))
    assert not layers(fresh) and all(p.requires_grad for p in fresh.parameters())


def test_it_is_a_value_with_a_json_form_and_draws_by_the_seed():
    spec = LoRA(rank=2, layers=("*.q", "*.v"))
    assert type(spec).from_json(spec.to_json()) == spec
    a, b, c = (adapt(model(), LoRA(), seed=seed).state_dict() for seed in (0, 0, 1))
    name = "decoder.blocks.0.attention.q.lora_a"
    assert torch.equal(a[name], b[name]) and not torch.equal(a[name], c[name])
