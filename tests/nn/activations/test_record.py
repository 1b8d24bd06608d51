"""Recorded activations are the pass's own: they add up, give gradients, and leave the model as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qkv.io.families import preset
from qkv.nn.activations import Add, intervene, record
from qkv.nn.attention import tap
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])


def decoder(**changes: object) -> nn.Module:
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16)
    return build(spec.replace(changes), seed=0).eval()


@torch.no_grad()
def test_the_residual_stream_is_the_sum_of_its_parts():
    model = decoder()
    with record(model) as at:
        logits = model(IDS)
    for i in (0, 1):
        layer = f"decoder.layers.{i}"
        total = at[f"{layer}.input"] + at[f"{layer}.attention"] + at[f"{layer}.feedforward"]
        torch.testing.assert_close(at[f"{layer}.output"], total)
    assert torch.equal(at["decoder.layers.0.input"], at["decoder.embedding"])
    assert torch.equal(at["decoder.layers.1.input"], at["decoder.layers.0.output"])
    assert torch.equal(at["logits"], logits)


@torch.no_grad()
def test_heads_are_weights_times_values():
    model = decoder()
    with record(model) as at:
        model(IDS)
    weights, v = at["decoder.layers.1.attention.weights"], at["decoder.layers.1.attention.v"]
    heads = at["decoder.layers.1.attention.heads"]
    torch.testing.assert_close(heads, (weights @ v.transpose(1, 2)).transpose(1, 2))
    scores = at["decoder.layers.1.attention.scores"]
    torch.testing.assert_close(scores.softmax(-1), weights)
    out = model.decoder.blocks[1].attention.out
    torch.testing.assert_close(out(heads.flatten(-2)), at["decoder.layers.1.attention"])


def test_gradients_of_every_activation_equal_finite_differences():
    model = decoder().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 5  # gradients of the usual initialization are near the rounding of differences
    names = ["decoder.layers.0.attention.heads", "decoder.layers.1.input", "decoder.layers.0.attention.weights"]
    names += ["decoder.layers.1.feedforward.neurons", "decoder.layers.1.attention.q"]
    with record(model, names) as at:
        loss = model(IDS).square().sum()
    grads = torch.autograd.grad(loss, [at[name] for name in names])
    for name, grad in zip(names, grads, strict=True):
        assert grad.shape == at[name].shape
        assert _slope(model, name, grad) == pytest.approx(float(grad.square().sum()), rel=1e-4)


@torch.no_grad()
def _slope(model: nn.Module, name: str, direction: Tensor, step: float = 1e-6) -> float:
    """The derivative of the loss along a direction of an activation."""
    losses = []
    for sign in (1, -1):
        with intervene(model, {name: Add(direction, sign * step)}):
            losses.append(float(model(IDS).square().sum()))
    return (losses[0] - losses[1]) / (2 * step)


@torch.no_grad()
def test_recording_leaves_the_fused_kernel_and_nothing_behind():
    model = decoder()
    plain = model(IDS)
    with record(model) as at:
        assert torch.equal(model(IDS), plain)
    hooks = [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]
    assert not hooks and not tap.recording()
    assert torch.equal(at["decoder.layers.0.attention.weights"], at["decoder.layers.0.attention.weights"])


@torch.no_grad()
def test_layers_that_share_a_block_are_recorded_separately():
    model = decoder(**{"decoder.blocks": decoder().spec.decoder.blocks[:1], "decoder.order": (0, 0, 0)})
    with record(model) as at:
        model(IDS)
    inputs = [at[f"decoder.layers.{i}.input"] for i in range(3)]
    outputs = [at[f"decoder.layers.{i}.output"] for i in range(3)]
    assert torch.equal(inputs[1], outputs[0]) and torch.equal(inputs[2], outputs[1])
    weights = [at[f"decoder.layers.{i}.attention.weights"] for i in range(3)]
    assert not torch.equal(weights[0], weights[1])


@torch.no_grad()
def test_only_what_was_asked_for():
    model = decoder()
    with record(model, "decoder.layers.*.output") as at:
        model(IDS)
    assert list(at) == ["decoder.layers.0.output", "decoder.layers.1.output"]
    with pytest.raises(KeyError, match="logits' was not recorded"):
        at["logits"]
    with pytest.raises(KeyError, match="does not exist in this model; did you mean"):
        at["decoder.layer.0.output"]


@torch.no_grad()
def test_the_alignment_of_a_recurrent_model():
    model = build(preset("rnnsearch", vocab_size=11, d_e=6, d_h=6, d_s=6), seed=0).eval()
    with record(model) as at:
        model(IDS, IDS[:, :3])
    torch.testing.assert_close(at["decoder.cross.weights"].sum(-1), torch.ones(2, 1, 3))
    with tap.record_attention() as requests:
        model(IDS, IDS[:, :3])
    with pytest.raises(ValueError, match="without their scores"):
        tap.scores(requests[0])


def test_the_table_of_a_notebook_lists_shapes():
    model = decoder()
    with record(model, "logits") as at:
        model(IDS)
    assert "(2, 5, 11)" in at._repr_html_()
    assert repr(at) == "Activations(logits)"
