"""Bug 23 of those that others shipped: expert balance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from every import every_family
from small import (
    gradients,
    ids,
    model,
    packed,
    padded,
    same,
    same_gradients,
    spread,
)

from qkv.core.batch import IGNORE, Batch
from qkv.nn.layers.moe import Mixture
from qkv.training.gradients.accumulation import weighed
from qkv.training.objective import NextToken


def with_experts(family: str, **options: Any) -> Any:
    experts = {"kind": "moe", "n_experts": 4, "top_k": 2, "d_ff": 12, **options}
    return model(family, block={"placement": "pre", "norm": "none", "feedforward": experts}).train()


@pytest.mark.parametrize("family", ["encoder", "decoder"])
@pytest.mark.parametrize("balance", ["switch", "gshard", "mixtral"])
@pytest.mark.parametrize("side", ["left", "right", "holes"])
def test_bug_23_balance_losses_do_not_count_padding(family: str, balance: str, side: str) -> None:
    """What experts report and lose, and its gradients, count the real tokens only."""
    built = with_experts(family, balance=balance, router_z=0.01)
    lengths = [6, 2, 4]
    rows, found = [ids(1, n, seed=n)[0] for n in lengths], []
    for layout in (padded(lengths, side, 7), packed([lengths])):
        tokens = torch.cat(rows)[None] if len(layout.valid) == 1 else spread(rows, layout)
        extras = built(tokens, layout=layout, labels=torch.where(layout.valid, tokens, IGNORE)).extras
        torch.stack([extra.loss for extra in extras.values() if extra.loss is not None]).sum().backward()
        found.append(({name: extra.value.double() for name, extra in extras.items()}, gradients(built)))
    (values, slopes), (wanted, wanted_slopes) = found
    for name, value in wanted.items():
        same(values[name], value, 1e-6, name)
    assert any(slope.norm() > 0 for slope in wanted_slopes.values())
    same_gradients(slopes, wanted_slopes)


@every_family
@pytest.mark.parametrize("policy", ["none", "blocks", "alternate"])
def test_bug_23_balance_is_in_the_loss_by_default_and_not_in_evaluation(family: str, policy: Any) -> None:
    """Minimized once, recomputed or not, and not part of the perplexity."""
    built = with_experts(family)
    built.recompute(policy)
    tokens, labels = ids(2, 6), ids(2, 6, seed=1)
    source = {"target": tokens} if built.is_encoder_decoder else {}
    one = Batch({"ids": tokens, **source}, labels, {"loss": 12}, 12, 12)
    terms = NextToken()(built, one)
    total = weighed(terms, {"loss": 12})
    added = 0.01 * len(experts_of(built)) * terms["balance"].value / 12
    same(total, terms["loss"].sum / 12 + added)
    total.backward()
    assert all(module.router.weight.grad.norm() > 0 for module in experts_of(built))
    assert NextToken()(built.eval(), one).keys() == {"loss"}
    same(NextToken()(built, one)["loss"].sum, terms["loss"].value)


def experts_of(built: Any) -> list[Any]:
    return [module for module in built.modules() if isinstance(module, Mixture)]
