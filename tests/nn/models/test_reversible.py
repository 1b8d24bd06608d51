"""Reversible stacks: the paper's equations, autograd's gradients, memory that does not grow with depth, and decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.generation import generate
from qkv.nn.attention.lsh import LSHAttention
from qkv.nn.attention.mixer import Pass
from qkv.nn.cost.flops import BatchShape
from qkv.nn.cost.memory import MemorySettings, predict
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.block import Block
from qkv.nn.models.reversible import reversible
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.patterns.basic import causal
from qkv.nn.positions.base import PositionModule

VOCAB, IDS = 23, torch.randint(23, (2, 9))
PADDED = Layout.from_lengths([7, 9])


def gpt(n_layers: int = 3, placement: str = "reversible", **options: Any) -> qkv.Transformer:
    sizes = {"vocab_size": VOCAB, "d_model": 16, "n_heads": 2, "max_positions": 64, "dropout": 0.0, **options}
    return qkv.preset("gpt2", n_layers=n_layers, **sizes).replace({"decoder.blocks.*.placement": placement})


def translator() -> qkv.Transformer:
    spec = qkv.preset("transformer", vocab_size=VOCAB, d_model=16, n_heads=2, d_ff=24, n_layers=2, dropout=0.0)
    changes = {f"{stack}.blocks.*.placement": "reversible" for stack in ("encoder", "decoder")}
    return spec.replace({**changes, "encoder.position": "t5", "decoder.position": "t5"})


def by_autograd(blocks: Any, x: Tensor, runs: list[Pass]) -> Tensor:
    """The same without being undone."""
    for block, run in zip(blocks, runs, strict=True):
        x = block(x, run)
    return x


def gradients(model: TransformerModel, *inputs: Tensor, seed: int = 5) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(seed)
    layouts = {"target_layout" if len(inputs) == 2 else "layout": PADDED}
    model(*inputs, labels=inputs[-1].roll(-1, 1), **layouts).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_outputs_match_the_equations() -> None:
    block = {"attention": {"kind": "attention", "n_heads": 2}, "feedforward": {"kind": "feedforward", "d_ff": 24}}
    module = Block.from_dict({**block, "placement": "reversible"}).module(16).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x1, x2 = torch.randn(2, 2, 9, 16, dtype=torch.float64)
    run = Pass.over(Layout.full(9), PositionModule())
    y1 = x1 + module.attention(module.norm["attention"](x2), run)
    y2 = x2 + module.feedforward(module.norm["feedforward"](y1))
    expected = torch.stack([y1, y2])
    torch.testing.assert_close(module(torch.stack([x1, x2]), run), expected)
    torch.testing.assert_close(reversible([module], torch.stack([x1, x2]), [run]), expected)


def test_streams_begin_alike_and_end_with_their_mean() -> None:
    model = qkv.build(gpt(), dtype=torch.float64).eval()
    stack = model.decoder
    assert stack is not None
    seen: list[Tensor] = []
    stack.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    stack.blocks[-1].register_forward_hook(lambda *given: seen.append(given[-1]))
    with torch.no_grad():
        out = stack(IDS, Layout.full(9))
    first, last = seen
    assert torch.equal(first[0], first[1]) and not torch.allclose(last[0], last[1])
    torch.testing.assert_close(out, stack.norm(last.mean(0)))


@pytest.mark.parametrize(
    "options",
    [
        {"position": "rotary"},
        {"position": "t5"},
        {"dropout": 0.3, "position": "alibi"},
        {"decoder.drop_path": 0.5},
        {"decoder.blocks.*.layer_scale": 0.5, "decoder.blocks.*.cross": None},
        {"decoder.blocks.1.attention": "none"},
        {"decoder.blocks.*.attention": LSHAttention(n_heads=2, pattern=causal(), chunk=4, buckets=4)},
    ],
    ids=lambda o: ",".join(o),
)
def test_gradients_are_autograds(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {path: value for path, value in options.items() if "." in path}
    spec = gpt(**{name: value for name, value in options.items() if "." not in name}).replace(changes)
    model = qkv.build(spec, dtype=torch.float64).train()
    found = gradients(model, IDS)
    after = torch.rand(1)
    monkeypatch.setattr("qkv.nn.models.stack.reversible", by_autograd)
    torch.testing.assert_close(found, gradients(model, IDS))
    assert found.keys() == {name for name, _ in model.named_parameters()}
    assert torch.equal(torch.rand(1), after), "what is drawn again leaves the generator where it was"


def test_gradients_reach_an_encoder_and_shared_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    model = qkv.build(translator(), dtype=torch.float64).train()
    source = torch.randint(VOCAB, (2, 6))
    found = gradients(model, source, IDS)
    monkeypatch.setattr("qkv.nn.models.stack.reversible", by_autograd)
    torch.testing.assert_close(found, gradients(model, source, IDS))


def test_frozen_parts_get_no_gradient() -> None:
    model = qkv.build(gpt(), dtype=torch.float64).train()
    wanted = gradients(model, IDS)
    frozen = [n for n, _ in model.named_parameters() if "blocks.1" in n or "embedding" in n or "position" in n]
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    found = gradients(model, IDS)
    assert found.keys() == wanted.keys() - set(frozen)
    torch.testing.assert_close(found, {name: wanted[name] for name in found})


def saved(model: TransformerModel) -> int:
    """Bytes that a forward pass keeps for backward, weights apart."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(IDS, labels=IDS).loss
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert loss.requires_grad
    return sum(size for at, size in kept.items() if at not in own)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_memory_does_not_grow_with_depth(dropout: float) -> None:
    shallow, deep = (qkv.build(gpt(n, dropout=dropout)).train() for n in (2, 12))
    assert saved(deep) == saved(shallow)
    plain = [saved(qkv.build(gpt(n, "pre", dropout=dropout)).train()) for n in (2, 12)]
    assert plain[1] > 4 * plain[0]


def test_the_predicted_memory_knows() -> None:
    memory = [predict(gpt(n), BatchShape(8, 64), MemorySettings()) for n in (2, 12)]
    assert memory[0] is not None and memory[1] is not None
    assert memory[1].activations == memory[0].activations


@torch.no_grad()
def test_cached_steps_give_the_logits_of_one_pass() -> None:
    for spec in (gpt(position="rotary"), translator()):
        model = qkv.build(spec, dtype=torch.float64).eval()
        source = torch.randint(VOCAB, (2, 6))
        paired = spec.is_encoder_decoder
        cache = model.start(source=source) if paired else model.start(2)
        steps = [model.step(IDS[:, :4], cache, all_positions=True)]
        steps += [model.step(IDS[:, t : t + 1], cache, all_positions=True) for t in range(4, 9)]
        torch.testing.assert_close(torch.cat(steps, 1), model(source, IDS) if paired else model(IDS))
    model = qkv.build(gpt()).eval()
    for beams in (1, 3):
        assert len(generate(model, [[3, 4]], max_new_tokens=5, num_beams=beams).best[0]) == 5


def test_recompute_changes_nothing_and_accumulation_adds() -> None:
    model = qkv.build(gpt(dropout=0.3), dtype=torch.float64).train()
    once = gradients(model, IDS)
    model.recompute("blocks")
    torch.testing.assert_close(gradients(model, IDS), once)
    model(IDS, labels=IDS).loss.backward()
    assert all(not torch.equal(model.get_parameter(name).grad, grad) for name, grad in once.items())  # type: ignore[arg-type]


@pytest.mark.slow
def test_autocast_and_compiled() -> None:
    model, grads = qkv.build(gpt()).train(), []
    for cast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            loss = model(IDS, labels=IDS).loss
        model.zero_grad()
        loss.backward()
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (grads[0] - grads[1]).norm() < 0.05 * grads[0].norm() and not torch.equal(*grads)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager")  # the graph breaks around the blocks
    torch.testing.assert_close(compiled(IDS, labels=IDS).loss, model(IDS, labels=IDS).loss)
    torch.compiler.reset()


def test_cost_matches_pre_norm() -> None:
    assert gpt().cost(30) == gpt(placement="pre").cost(30)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"decoder.blocks.1.placement": "pre"}, "make all blocks of a stack reversible"),
        ({"decoder.blocks.*.residual": "none"}, "a reversible block adds to its streams"),
        (
            {"decoder.blocks.*.feedforward": MixtureOfExperts(n_experts=4, d_ff=8)},
            "the router might then choose other experts",
        ),
    ],
)
def test_unfit_blocks_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gpt().replace(changes)
