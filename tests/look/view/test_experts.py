"""Recorded routing: the experts with the largest router scores, best first, for each token."""

from __future__ import annotations

import torch
from torch import nn

import qkv
from qkv.look.view.experts import expert_panels, record_routing

IDS = torch.tensor([[3, 1, 4, 1, 5]])


def mixture() -> nn.Module:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "n_kv_heads": 2, "d_ff": 8, "vocab_size": 9, "n_experts": 4}
    return qkv.build(qkv.preset("mixtral-8x7b", **sizes), seed=0).eval()


@torch.no_grad()
def test_experts_are_those_with_the_largest_scores() -> None:
    model, seen = mixture(), dict[str, torch.Tensor]()
    for name, module in model.named_modules():
        if name.endswith("router"):
            module.register_forward_pre_hook(lambda m, x, name=name: seen.__setitem__(name, x[0].flatten(0, -2)))
    with record_routing(model) as found:
        model(IDS)
    model(IDS)
    assert [layer.name for layer in found.layers] == [*seen] and len(seen) == 2
    for layer in found.layers:
        weight = model.get_submodule(layer.name).get_parameter("weight")
        best = (seen[layer.name] @ weight.T).softmax(-1).topk(2)
        assert torch.equal(layer.experts, best.indices)
        torch.testing.assert_close(layer.gates, best.values / best.values.sum(-1, keepdim=True))


@torch.no_grad()
def test_a_panel_shows_chosen_tokens_by_layer() -> None:
    model = mixture()
    with record_routing(model) as found:
        model(IDS)
    (panel,) = expert_panels(found, {"decoder": (["d", "e"], [3, 4]), "encoder": (["a"], [0])})
    tree = str(panel)
    assert "Experts of the decoder" in tree and "+".join(map(str, found.layers[0].experts[3].tolist())) in tree
