"""Expert parallelism: the experts of mixtures divided over ranks, to which tokens travel (Lepikhin et al. 2020, GShard).

Each rank has some experts of every mixture. Its tokens, sorted by expert, go to the ranks that have their experts
(all-to-all), and the outputs come back the same way. Routers, gates and shared layers are on every rank.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ....nn.cost.plan.rules import check_experts
from ....nn.layers.moe import Mixture
from .. import collectives
from ..mesh import Mesh
from ..world import World
from .division import Division, ParameterSlice


def divide_experts(model: nn.Module, mesh: Mesh, division: Division) -> None:
    """Divide the experts of all mixtures over the axis "expert".

    Raises ValueError if the model has none, or their number can't be divided.
    """
    ranks, size = mesh.group("expert"), mesh.size("expert")
    assert isinstance(ranks, World)
    mixtures = [(name, module) for name, module in model.named_modules() if isinstance(module, Mixture)]
    check_experts(size, {name: mixture.spec.n_experts for name, mixture in mixtures})
    for _, mixture in mixtures:
        n = mixture.spec.n_experts
        for layer in (mixture.gate, mixture.up, mixture.down):
            if layer is not None:
                division.divide(layer, "weight", ParameterSlice.of(mesh, "expert", 0, n))
        division.switch(mixture, "experts", partial(_experts, mixture, ranks))


def _experts(mixture: Mixture, ranks: World, x: Float[Tensor, "R M"], ends: Int[Tensor, " E"]) -> Float[Tensor, "R M"]:
    """`Mixture.experts`, at the ranks that have them. Rows after the last end become zeros."""
    own = len(ends) // ranks.size
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    mine = collectives.swapped(counts, ranks)  # by rank: how many rows it has for each expert of this rank
    sent, received = torch.stack([counts, mine]).view(2, ranks.size, own).sum(2).tolist()
    rows = collectives.exchange(x[: sum(sent)], ranks, sent, received)
    experts = torch.arange(own, device=x.device).repeat(ranks.size)
    expert_of = experts.repeat_interleave(mine, output_size=len(rows))
    order = expert_of.argsort(stable=True)  # rows come sorted by rank, then by expert
    done = Mixture.experts(mixture, rows[order], mine.view(ranks.size, own).sum(0).cumsum(0))
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    out = collectives.exchange(done[back], ranks, received, sent)
    return torch.cat([out, out.new_zeros(len(x) - len(out), out.shape[1])])
