"""Stacks: runs of blocks in JSON, names of layers, positions of a stack, and activation checkpointing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.layout import Layout
from qkv.io.families import preset
from qkv.nn.attention import tap
from qkv.nn.layers.moe import MixtureOfExperts
from qkv.nn.models.build import build
from qkv.nn.models.placement import Placement, PostNorm
from qkv.nn.models.stack import Stack
from qkv.nn.models.transformer import Transformer, TransformerModel
from qkv.nn.positions.base import Position
from qkv.nn.positions.bias import T5Buckets
from qkv.nn.positions.rotary import Rotary

BLOCK = {"attention": {"kind": "attention", "n_heads": 2}, "feedforward": {"kind": "feedforward", "d_ff": 8}}


def gpt(n_layers: int = 3, **options: Any) -> Transformer:
    sizes = {"vocab_size": 23, "d_model": 16, "n_heads": 2, "max_positions": 12, **options}
    return preset("gpt2", n_layers=n_layers, **sizes)


def test_runs_of_equal_blocks_are_written_once() -> None:
    stack = Stack.from_dict({"blocks": [{"repeat": 5, "block": BLOCK}, BLOCK]})
    assert stack.n_layers == 6 and len(set(stack.blocks)) == 1
    assert [run["repeat"] for run in stack.to_dict()["blocks"]] == [6]
    mixed = stack.replace({"blocks.2.dropout": 0.5})
    assert [run["repeat"] for run in mixed.to_dict()["blocks"]] == [2, 1, 3]
    assert Stack.from_json(mixed.to_json()) == mixed
    assert len(json.dumps(gpt(100).to_dict())) < 1.1 * len(json.dumps(gpt(2).to_dict()))


def test_blocks_are_read_as_they_were_written_before_placements_were_open() -> None:
    for placement in ("pre", "post", "sandwich", "parallel", "reversible"):
        old = {**BLOCK, "placement": placement, "shared_norm": False, "residual": "add", "layer_scale": None}
        (block,) = Stack.from_dict({"blocks": [old]}).blocks
        assert block.placement == Placement.from_dict({"kind": placement}) and block.residual_multiplier == 1.0
    assert gpt().replace({"decoder.blocks.*.placement": "post"}).decoder.blocks[0].placement == PostNorm()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "blocks, said",
    [
        ([], "blocks: tuple should have at least 1 item"),
        ([{"repeat": 0, "block": BLOCK}], 'a run of blocks is {"repeat": 1 … 4096, "block": {…}}'),
        ([{"repeat": 10**9, "block": BLOCK}], "a run of blocks is"),
        ([{"repeat": 2, "blocks": BLOCK}], "a run of blocks is"),
        ([{"repeat": 2, "block": {**BLOCK, "droput": 1}}], "droput"),
        ("six", "blocks: input should be a valid tuple"),
    ],
)
def test_wrong_repeats_of_blocks_are_refused(blocks: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Stack.from_dict({"blocks": blocks})


def test_diff_speaks_in_the_paths_that_replace_takes() -> None:
    for change in ({"decoder.blocks.*.dropout": 0.5}, {"decoder.blocks.1.attention.n_kv_heads": 1}):
        a, b = gpt(), gpt().replace(change)
        difference = a.diff(b)
        assert a.replace({path: theirs for path, (_, theirs) in difference.items()}) == b
        assert len(difference) <= 3


def test_layers_have_names() -> None:
    spec = preset("transformer", vocab_size=23, d_model=16, n_heads=2, d_ff=16, n_layers=2)
    with tap.record_attention() as requests:
        build(spec)(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 3, dtype=torch.long))
    layers = [f"{s}.blocks.{i}" for s in ("encoder", "decoder") for i in range(2)]
    expected = [f"{x}.{part}" for x in layers for part in ("attention", *(["cross"] if x[0] == "d" else []))]
    assert [request.name for request in requests] == expected


def test_positions_reach_every_layer_of_their_stack() -> None:
    spec = preset("transformer", vocab_size=23, d_model=16, n_heads=2, d_ff=16, n_layers=2)
    model = build(spec.replace({"decoder.position": "alibi", "encoder.position": "none"}))
    with tap.record_attention() as requests:
        model(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 3, dtype=torch.long))
    biased = {request.name for request in requests if request.bias is not None}
    assert biased == {"decoder.blocks.0.attention", "decoder.blocks.1.attention"}


def gradients(model: TransformerModel, ids: Tensor, policy: str) -> dict[str, Tensor]:
    model.recompute(policy)  # type: ignore[arg-type]
    model.zero_grad()
    torch.manual_seed(5)
    model(ids, labels=ids.roll(-1, 1), layout=Layout.from_lengths([7, 9])).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("policy", ["blocks", "alternate"])
@pytest.mark.parametrize("backend", ["auto", "tiled", "reference"])
@pytest.mark.parametrize("position", ["learned", "rotary", "alibi", "t5"])
def test_checkpointing_has_the_same_gradients_with_dropout_on(position: str, backend: str, policy: str) -> None:
    spec = gpt(position=position, dropout=0.3).replace({"decoder.blocks.*.attention.backend": backend})
    model, ids = build(spec).train(), torch.randint(23, (2, 9))
    plain, again = gradients(model, ids, "none"), gradients(model, ids, policy)
    assert plain.keys() == {name for name, _ in model.named_parameters()}
    torch.testing.assert_close(again, plain)


def test_checkpointing_runs_blocks_again_and_only_those_asked_for() -> None:
    model, ids, calls = build(gpt(4)).train(), torch.randint(23, (2, 9)), [0] * 4
    for i, block in enumerate(model.decoder.blocks):  # type: ignore[union-attr]
        block.register_forward_pre_hook(lambda *_, i=i: calls.__setitem__(i, calls[i] + 1))
    for policy, expected in (("none", [1, 1, 1, 1]), ("alternate", [2, 1, 2, 1]), ("blocks", [2, 2, 2, 2])):
        calls[:] = [0] * 4
        gradients(model, ids, policy)
        assert calls == expected


@pytest.mark.parametrize("position", ["none", "sinusoidal", "learned", "rotary", "alibi", "t5"])
def test_every_position_scheme_makes_order_matter_or_does_not(position: str) -> None:
    spec = gpt(position=position).replace({"decoder.blocks.*.attention.pattern": "full"})
    model, ids = build(spec).eval(), torch.tensor([[3, 1, 4, 1, 5]])
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        last, turned = model(ids)[:, -1], model(ids[:, [1, 0, 3, 2, 4]])[:, -1]
    assert torch.allclose(last, turned, atol=1e-5) == (position == "none")
    assert Position.from_dict({"kind": position}).kind == position


def test_blocks_may_have_separate_positions() -> None:
    local = Rotary(base=50.0)
    changes = {
        "decoder.blocks.0.position": local,
        "decoder.blocks.1.position": "none",
        "decoder.blocks.3.position": local,
    }
    spec = gpt(4, position="rotary").replace(changes)
    assert Transformer.from_json(spec.to_json()) == spec
    model, ids = build(spec, dtype=torch.float64).eval(), torch.randint(23, (2, 9))
    alone = [build(gpt(4, position=p), dtype=torch.float64).eval() for p in ("rotary", local, "none")]
    x, layout = torch.randn(2, 9, 16, dtype=torch.float64), Layout.full(9)
    runs = model.decoder._passes(layout, None, None, None)  # type: ignore[union-attr]
    assert runs[0] is runs[3] and len({id(run) for run in runs}) == 3 and len({id(run.plan) for run in runs}) == 1
    for i, same in ((0, alone[1]), (1, alone[2]), (2, alone[0]), (3, alone[1])):
        wanted = same.decoder.blocks[i](x, same.decoder._passes(layout, None, None, None)[i])  # type: ignore[union-attr]
        assert torch.equal(model.decoder.blocks[i](x, runs[i]), wanted)  # type: ignore[union-attr]
    assert model(ids).shape == (2, 9, 23) and model.state_dict().keys() == alone[0].state_dict().keys()


def test_blocks_with_one_table_of_relative_positions_share_it() -> None:
    table = T5Buckets(buckets=8, max_distance=20)
    spec = gpt(3, position="none").replace({"decoder.blocks.0.position": table, "decoder.blocks.2.position": table})
    model = build(spec)
    assert spec.n_parameters == sum(p.numel() for p in model.parameters())
    assert model.decoder.block_positions[0].weight.shape == (8, 2)  # type: ignore[union-attr]
    model(torch.randint(23, (2, 9)), labels=torch.randint(23, (2, 9))).loss.backward()
    assert model.decoder.block_positions[0].weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_positions_of_a_block_that_are_added_to_the_input_are_refused() -> None:
    with pytest.raises(ValueError, match=r"decoder\.blocks\.1\.position .* is added to the input"):
        build(gpt(2).replace({"decoder.blocks.1.position": "sinusoidal"}))


def test_stochastic_depth_grows_with_depth() -> None:
    spec = gpt(4, dropout=0.0).replace({"decoder.drop_path": 0.4})
    model = build(spec)
    rates = [block.drop_path for block in model.decoder.blocks]  # type: ignore[union-attr]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert Transformer.from_json(spec.to_json()) == spec
    with pytest.raises(ValueError, match="drop_path is set for the stack and for some of its blocks"):
        spec.replace({"decoder.blocks.1.drop_path": 0.1})


@pytest.mark.parametrize("policy", ["blocks", "alternate"])
def test_checkpointing_skips_the_same_branches_again(policy: str) -> None:
    model, ids = build(gpt(4).replace({"decoder.drop_path": 0.7})).train(), torch.randint(23, (2, 9))
    plain, again = gradients(model, ids, "none"), gradients(model, ids, policy)
    torch.testing.assert_close(again, plain)


# -- what layers say beside their output --------------------------------------------------------------------------------


def experts(n_layers: int = 3, **options: Any) -> Transformer:
    layer = MixtureOfExperts(**{"n_experts": 4, "d_ff": 8, "router_z": 0.01, "jitter": 0.1, **options})
    return gpt(n_layers).replace({"decoder.blocks.0.feedforward": layer, "decoder.blocks.2.feedforward": layer})


@pytest.mark.parametrize("policy", ["blocks", "alternate"])
def test_checkpointed_experts_say_everything_once(policy: str) -> None:
    found = []
    ids, layout = torch.randint(23, (2, 9)), Layout.from_lengths([7, 9])
    for how in ("none", policy):
        model = build(experts(bias_rate=0.01), dtype=torch.float64).train()
        model.recompute(how)  # type: ignore[arg-type]
        torch.manual_seed(5)
        sums = model(ids, labels=ids.roll(-1, 1), layout=layout)
        (sums.loss + sum(extra.loss for extra in sums.extras.values() if extra.loss is not None)).backward()
        loads = [block.feedforward.load for block in model.decoder.blocks[::2]]  # type: ignore[union-attr, index]
        assert [int(load.sum()) for load in loads] == [2 * 16, 2 * 16], "each choice of a real token, once"
        found.append(({n: e.value for n, e in sums.extras.items()}, loads, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(found[1], found[0])


def test_experts_say_nothing_in_evaluation_and_without_labels() -> None:
    model, ids = build(experts()), torch.randint(23, (2, 9))
    assert model.train()(ids, labels=ids).extras.keys() == {"expert_load", "router_entropy", "balance", "router_z"}
    assert model.train()(ids).shape == (2, 9, 23)
    assert model.eval()(ids, labels=ids).extras is None
    assert build(gpt()).train()(ids, labels=ids).extras == {}


def test_experts_of_both_stacks_are_summed_up_together() -> None:
    layer = MixtureOfExperts(n_experts=4, d_ff=8, balance_weight=0.5)
    spec = preset("transformer", vocab_size=23, d_model=16, n_heads=2, d_ff=16, n_layers=1)
    model = build(spec.replace({"encoder.blocks.0.feedforward": layer, "decoder.blocks.0.feedforward": layer})).train()
    balance = model(torch.ones(1, 4).long(), torch.ones(1, 3).long(), labels=torch.ones(1, 3).long()).extras["balance"]
    assert balance.loss.item() == pytest.approx(0.5 * 2 * balance.value.item())
