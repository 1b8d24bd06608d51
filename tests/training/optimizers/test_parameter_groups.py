"""Parameter groups: frozen parameters, and rates by layer and by name."""

import pytest
import torch
from torch import nn
from train_stand_in import Tiny

import qkv
from qkv.nn.attention.multi_head import Attention
from qkv.nn.layers.feedforward import FeedForward
from qkv.nn.layers.patches import Patches
from qkv.nn.models.block import Block
from qkv.nn.models.build import build
from qkv.nn.models.heads.vision import ImageClassifier
from qkv.nn.models.stack import Stack
from qkv.nn.models.transformer import Transformer
from qkv.training.optimizers import AdamW, Optimizer
from qkv.training.optimizers.parameter_groups import from_the_top

SMALL = {"d_model": 16, "n_heads": 2, "d_ff": 32, "vocab_size": 20}


KINDS = sorted(kind for kind, cls in Optimizer.kinds.items() if cls.__module__.startswith("qkv."))


def names(optimizer: torch.optim.Optimizer) -> dict[float, set[str]]:
    found: dict[float, set[str]] = {}
    for group in optimizer.param_groups:
        found.setdefault(group.get("decoupled_decay", group["weight_decay"]), set()).update(group["param_names"])
    return found


def factors(spec: Optimizer, model: nn.Module) -> dict[str, float]:
    groups = spec.build(model).param_groups
    assert all(group["lr"] == spec.lr * group["scale"] for group in groups)
    return {name: group["scale"] for group in groups for name in group["param_names"]}


def test_frozen_parameters_stay_out():
    model = Tiny()
    model.layer.weight.requires_grad_(False)
    assert "layer.weight" not in set().union(*names(AdamW().build(model)).values())
    with pytest.raises(ValueError, match="no trainable parameters"):
        AdamW().build(model.requires_grad_(False))


@pytest.mark.parametrize("kind", KINDS)
def test_freezing_by_pattern(kind):
    model = Tiny()
    optimizer = Optimizer.from_dict({"kind": kind, "freeze": ["norm.*", "*.bias"]}).build(model)
    assert set().union(*names(optimizer).values()) == {"layer.weight", "embedding.weight"}
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == {
        *("norm.weight", "norm.bias", "layer.bias")
    }


def test_a_tied_table_answers_to_each_of_its_names():
    model = Tiny()
    assert "embedding.weight" not in factors(AdamW(freeze="output.*"), model)
    assert factors(AdamW(rates={"output.weight": 0.5}), Tiny())["embedding.weight"] == 0.5


def test_layers_learn_at_rates_that_fall_with_their_depth():
    model = qkv.build(qkv.preset("gpt2", n_layers=3, max_positions=8, **SMALL))
    got = factors(AdamW(lr=0.2, layer_decay=0.5), model)
    for layer, factor in enumerate((0.125, 0.25, 0.5)):
        assert {f for name, f in got.items() if name.startswith(f"decoder.blocks.{layer}.")} == {factor}
    assert got["decoder.embedding.weight"] == got["decoder.position.weight"] == 0.0625
    assert got["decoder.norm.weight"] == 1.0


def test_each_stack_has_its_own_top():
    apart = {"head.tied": False, "tie_embeddings": False}
    model = qkv.build(qkv.preset("transformer", n_layers=2, **SMALL).replace(apart))
    got = factors(AdamW(layer_decay=0.5), model)
    for stack in ("encoder", "decoder"):
        layers = [got[f"{stack}.blocks.{layer}.attention.q.weight"] for layer in (0, 1)]
        assert layers == [0.25, 0.5] and got[f"{stack}.embedding.weight"] == 0.125
    assert got["head.weight"] == 1.0


def test_rates_by_pattern_multiply_with_one_another_and_with_the_layers():
    model = qkv.build(qkv.preset("gpt2", n_layers=2, max_positions=8, **SMALL))
    rates = {"*.attention.*": 0.5, "*.attention.q.*": 4.0}
    got = factors(AdamW(layer_decay=0.5, rates=rates), model)
    assert got["decoder.blocks.1.attention.q.weight"] == 1.0
    assert got["decoder.blocks.1.attention.k.bias"] == 0.25
    assert got["decoder.blocks.0.feedforward.up.weight"] == 0.25


@pytest.mark.parametrize("spec", [AdamW(freeze=["decodr.*"]), AdamW(rates={"decodr.*": 0.5})], ids=["freeze", "rates"])
def test_a_pattern_that_matches_nothing_names_the_nearest(spec):
    model = qkv.build(qkv.preset("gpt2", n_layers=1, max_positions=8, **SMALL))
    with pytest.raises(ValueError, match=r"(freeze|rates) names 'decodr.\*', which no .* did you mean 'decoder.\*'"):
        spec.build(model)
    with pytest.raises(ValueError, match=r"'zzz', which no parameter of this model matches; there is: decoder.\*"):
        AdamW(freeze="zzz").build(model)


def test_layers_need_blocks():
    with pytest.raises(ValueError, match="layer_decay needs a model with numbered blocks"):
        AdamW(layer_decay=0.9).build(Tiny())


def test_patches_lie_below_the_blocks_as_tokens_do() -> None:
    block = Block(attention=Attention(n_heads=2), feedforward=FeedForward(d_ff=8))
    patches = Patches(image=(8, 8), patch=(4, 4), before=1)
    spec = Transformer(
        d_model=8,
        encoder=Stack(embedding=patches, position="grid", blocks=(block,) * 2),
        head=ImageClassifier(labels=3),
    )
    model = build(spec)
    distances = {name: from_the_top(model)[p] for name, p in model.named_parameters()}
    below = {name for name in distances if name.startswith(("encoder.embedding", "encoder.position"))}
    assert below and {distances[name] for name in below} == {3}
    assert {distances[name] for name in distances if ".blocks.1." in name} == {1}
