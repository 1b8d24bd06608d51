"""ZeRO 1 and 2: owners of parameters, also of those that several stages of a pipeline have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from same_steps import _prepared, alone, compare, take_steps
from torch import nn

from qkv.core.ranks import Ranks
from qkv.nn.models.build import build
from qkv.training.parallel.data_parallel.replicated import owners
from qkv.training.parallel.scale import Scale
from qkv.training.parallel.team import Team

pytestmark = pytest.mark.xdist_group("ranks")
SCALE = {"pipeline": 2, "shard": 2, "zero": 1}
# The first stage has a table of positions that is larger than the tied table of tokens, and the last one has none.
TIED = ("model.d_model=24", "model.n_layers=5", "model.max_positions=64")


def owners_of_shared(ranks: Ranks) -> dict[str, int]:
    """The owners of the parameters that several stages have, as this rank sees them."""
    recipe, _, spec = _prepared("decoder", TIED)
    value = Scale.from_dict(SCALE)
    model = build(spec, seed=1)
    strategy = Team(ranks, torch.device("cpu"), value, value.sizes(ranks.size)).distribute(model)
    strategy.optimizer(recipe.training.optimizer)
    shared = strategy.division.everywhere  # type: ignore[attr-defined]
    return {name: owner for p, owner in strategy.owner.items() if (name := strategy.names[p]) in shared}  # type: ignore[attr-defined]


def test_owners_of_what_several_stages_have_do_not_depend_on_the_rest() -> None:
    shared, large, small = (nn.Parameter(torch.zeros(n)) for n in (5, 9, 3))
    first, last = (owners(some, [p.numel() for p in some], 2, [p is shared for p in some]) for some in (
        [large, shared], [shared, small]
    ))  # fmt: skip
    assert first[shared] == last[shared] == 0 and first[large] == last[small] == 1


@pytest.mark.slow
def test_all_stages_give_shared_parameters_the_same_owner(four: Any) -> None:
    found = four.run(owners_of_shared)
    assert found[0] and all(other == found[0] for other in found)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-1f1b", "zb-h1"])
@pytest.mark.parametrize("zero", [1, 2])
def test_tied_tables_of_a_pipeline_have_the_gradients_of_one_rank(four: Any, schedule: str, zero: int) -> None:
    settings = (*TIED, "training.accumulate=4")
    scale = {**SCALE, "zero": zero, "pipeline_schedule": schedule}
    compare(four.run(take_steps, "decoder", scale, settings), alone("decoder", settings))
