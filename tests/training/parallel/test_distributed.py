"""A model that ranks divide is never whole on one of them while it is made. All ranks take the norm of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fast_subset import fast
from resident import MEASURED, forget_peak, peak
from same_steps import alone, compare, take_steps

from qkv.core.ranks import Ranks
from qkv.io.families import preset
from qkv.nn.models.build import outline
from qkv.training.optimizers import SGD
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team

pytestmark = pytest.mark.xdist_group("ranks")
LAYOUTS: dict[str, dict[str, Any]] = {
    "zero 3": {"shard": 2},
    "pipeline": {"pipeline": 2},
    "tensor": {"tensor": 2},
}


def bytes_of_a_start(ranks: Ranks, scale: dict[str, Any]) -> tuple[int, int, int, int]:
    """Make a model and distribute it. Returns the bytes that were added at most, and the bytes of this rank's part, of
    the whole model and of its largest parameter."""
    value = Scale.from_dict(scale)

    def start(**sizes: int) -> tuple[Any, list[int]]:
        team = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size))
        model, draws = outline(preset("gpt2", **sizes), seed=1)
        parameters = [4 * p.numel() for p in model.parameters()]
        team.distribute(model, draws).optimizer(SGD(momentum=0.0))
        return model, parameters

    start(n_layers=2, d_model=32, n_heads=2, vocab_size=100)  # loads what is loaded at first use
    forget_peak()
    before = peak()
    model, parameters = start(n_layers=16, d_model=512, n_heads=8, vocab_size=2048)
    added = peak() - before
    own = 4 * sum(getattr(p, "_local_tensor", p).numel() for p in model.parameters())
    return added, own, sum(parameters), max(parameters)


@pytest.mark.parametrize("layout", fast(LAYOUTS, "pipeline"))
def test_a_start_holds_the_part_of_a_rank_and_one_parameter(two: Any, layout: str) -> None:
    if not MEASURED:
        pytest.skip("the peak of a process can't be read here")
    for added, own, whole, largest in two.run(bytes_of_a_start, LAYOUTS[layout]):
        assert added <= own + 2 * largest + 50e6 < whole


FROZEN = {
    # of one trained parameter, one of the ranks owns nothing
    "zero 1": ({"shard": 2, "zero": 1}, "['*.blocks.*', '*.embedding.*', '*.position.*']"),
    # the first stage trains only the table that both have
    "pipeline": ({"pipeline": 2}, "['*.blocks.0.*', '*.position.*']"),
}


@pytest.mark.parametrize("layout", FROZEN)
def test_a_rank_that_updates_less_than_others_takes_part_in_norm_and_clipping(two: Any, layout: str) -> None:
    scale, frozen = FROZEN[layout]
    settings = (f"training.optimizer={{kind: adamw, freeze: {frozen}}}", "training.accumulate=2")
    settings += ("training.clip_norm=0.5", "training.clip_value=0.01")
    compare(two.run(take_steps, "decoder", scale, settings), alone("decoder", settings))
