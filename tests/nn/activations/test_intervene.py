"""Changed activations: what they change, what they leave, and in generation as in one pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkv.io.families import preset
from qkv.nn.activations import Add, Patch, ScaleActivation, Zero, intervene, record, sites
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
HEADS = "decoder.layers.1.attention.heads"


def decoder(**changes: object) -> nn.Module:
    spec = preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16)
    return build(spec.replace(changes), seed=0).eval()


@torch.no_grad()
def test_a_head_without_output_is_a_head_without_its_columns():
    model = decoder()
    with intervene(model, {HEADS: Zero(heads=1)}):
        changed = model(IDS)
    out = model.decoder.blocks[1].attention.out
    out.weight[:, 4:] = 0.0
    torch.testing.assert_close(model(IDS), changed)


@torch.no_grad()
def test_a_causal_model_changes_from_the_position_on():
    model = decoder()
    plain = model(IDS)
    with intervene(model, {"decoder.layers.0.output": Zero(positions=2, rows=0)}):
        changed = model(IDS)
    assert torch.equal(changed[1], plain[1])
    assert torch.equal(changed[0, :2], plain[0, :2])
    assert not torch.isclose(changed[0, 2:], plain[0, 2:]).all(-1).any()


@torch.no_grad()
@pytest.mark.parametrize("name", sorted(sites(decoder())))
def test_every_activation_can_be_patched_with_itself(name: str):
    model = decoder()
    with record(model) as at:
        plain = model(IDS)
    with intervene(model, {name: Patch(at[name])}):
        torch.testing.assert_close(model(IDS), plain)
    with intervene(model, {name: lambda x: x * torch.linspace(0, 1, x.shape[-1])}):
        assert not torch.allclose(model(IDS), plain)


@torch.no_grad()
def test_patching_everything_from_another_text_gives_its_logits():
    model = decoder()
    with record(model) as at:
        other = model(IDS[1:])
    with intervene(model, {"decoder.layers.1.output": Patch(at["decoder.layers.1.output"])}):
        torch.testing.assert_close(model(IDS[:1]), other)


@torch.no_grad()
def test_one_key_hidden_from_one_query():
    model = decoder()

    def hide(scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, :, 3, 1] = torch.finfo(scores.dtype).min
        return scores

    with intervene(model, {"decoder.layers.0.attention.scores": hide}), record(model) as at:
        model(IDS)
    with intervene(model, {"decoder.layers.0.attention.weights": Zero(positions=3, keys=1)}), record(model) as zeroed:
        model(IDS)
    assert at["decoder.layers.0.attention"].isfinite().all()
    assert not torch.allclose(at["decoder.layers.0.attention"][:, 3], zeroed["decoder.layers.0.attention"][:, 3])
    assert torch.equal(at["decoder.layers.0.attention"][:, 2], zeroed["decoder.layers.0.attention"][:, 2])
    weights = "decoder.layers.0.attention.weights"
    assert not at[weights][:, :, 3, 1].any() and not zeroed[weights][:, :, 3, 1].any()  # those that were used
    torch.testing.assert_close(at[weights].sum(-1), torch.ones(2, 2, 5))
    assert (zeroed[weights].sum(-1)[:, :, 3] < 0.999).all()
    with record(model, weights) as outer, intervene(model, {weights: Zero(positions=3, keys=1)}):
        model(IDS)
    assert outer[weights][:, :, 3, 1].all()  # a recording around an intervention has what was there before it


@torch.no_grad()
def test_cached_decoding_runs_with_the_change():
    model = decoder()
    with intervene(
        model,
        {"decoder.layers.*.attention.heads": Zero(heads=0), "decoder.layers.0.attention.scores": ScaleActivation(0.5)},
    ):
        whole = model(IDS)
        cache = model.start(len(IDS))
        steps = [model.step(IDS[:, t : t + 1], cache) for t in range(IDS.shape[1])]
    torch.testing.assert_close(torch.stack(steps, 1), whole)


@torch.no_grad()
def test_one_layer_of_a_shared_block():
    model = decoder(**{"decoder.blocks": decoder().spec.decoder.blocks[:1], "decoder.order": (0, 0, 0)})
    with record(model) as plain:
        model(IDS)
    with intervene(model, {"decoder.layers.1.attention.heads": Zero()}), record(model) as at:
        model(IDS)
    assert torch.equal(at["decoder.layers.0.output"], plain["decoder.layers.0.output"])
    assert not at["decoder.layers.1.attention.heads"].any()
    assert at["decoder.layers.2.attention.heads"].any()


def test_gradients_flow_through_changes():
    model = decoder()
    direction = torch.zeros(8, requires_grad=True)
    with intervene(model, {"decoder.layers.0.output": Add(direction)}):
        model(IDS).sum().backward()
    assert direction.grad is not None and direction.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder.layers.7.output": Zero()}, "no activation 'decoder.layers.7.output'; did you mean"),
        ({HEADS: Zero(heads=2)}, "has 2 heads, from 0 to 1; there is no 2"),
        (
            {"decoder.layers.0.output": Zero(heads=0)},
            "decoder.layers.0.output has no heads; select from rows, positions",
        ),
        ({"decoder.layers.0.output": Patch(torch.zeros(2, 7, 8))}, "patch between texts of equally many tokens"),
        ({"decoder.layers.0.output": Add(torch.zeros(7))}, r"direction of shape \(7,\) does not broadcast"),
        ({"decoder.layers.0.output": lambda x: x[:1]}, r"returned a tensor of shape \(1, 5, 8\) in place of"),
        ({"decoder.layers.0.output": lambda x: None}, "returned NoneType in place of"),
    ],
)
def test_changes_that_do_not_fit(changes: dict[str, object], message: str):
    model = decoder()
    with pytest.raises(ValueError, match=message), intervene(model, changes):
        model(IDS)
    assert not [m for m in model.modules() if m._forward_hooks or m._forward_pre_hooks]


def test_the_alignment_of_a_recurrent_model_is_for_reading():
    model = build(preset("rnnsearch", vocab_size=11, d_e=6, d_h=6, d_s=6), seed=0).eval()
    with (
        pytest.raises(ValueError, match="can be recorded but not changed"),
        intervene(model, {"decoder.cross.*": Zero()}),
    ):
        pass
