"""Functions on activations: called once for each pass of the block, and their results take the place of what they got."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qkv.io.families import preset
from qkv.nn.activations.hooks import attached, observed
from qkv.nn.activations.sites import Site, sites
from qkv.nn.kernels.request import Request
from qkv.nn.models.build import build

IDS = torch.tensor([[3, 1, 4, 1, 5]])


def decoder() -> nn.Module:
    return build(preset("gpt2", vocab_size=11, d_model=8, n_layers=2, n_heads=2, max_positions=16), seed=0).eval()


@torch.no_grad()
def test_an_inner_function_gets_what_the_outer_one_returned() -> None:
    model, seen = decoder(), list[Tensor]()
    site = sites(model)["decoder.layers.0.feedforward"]

    def doubled(site: Site, x: Tensor) -> Tensor:
        return 2 * x

    def kept(site: Site, x: Tensor) -> Tensor:
        seen.append(x)
        return x

    with attached([site], kept):
        before = model(IDS)
    with attached([site], doubled), attached([site], kept):
        changed = model(IDS)
    assert len(seen) == 2 and torch.equal(seen[1], 2 * seen[0]) and not torch.equal(before, changed)
    assert torch.equal(model(IDS), before) and len(seen) == 2


@torch.no_grad()
def test_requests_are_seen_by_layer() -> None:
    model, seen = decoder(), list[tuple[str, int]]()
    chosen = [sites(model)[f"decoder.layers.{i}.attention.weights"] for i in (1, 0)]

    def see(site: Site, request: Request) -> None:
        seen.append((site.name, request.q.shape[1]))

    with observed(chosen, see):
        model(IDS)
    assert seen == [(f"decoder.layers.{i}.attention.weights", 5) for i in (0, 1)]
