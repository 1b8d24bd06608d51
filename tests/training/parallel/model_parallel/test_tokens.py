"""Tokens divided over ranks: dropout is that of one rank."""

import pytest
from fast_subset import diagonals
from same_steps import DROPPING, STAGES, alone, compare, take_steps

pytestmark = pytest.mark.xdist_group("ranks")

DIVIDED = {name: STAGES[name] for name in ("tensor", "ring", "all-to-all", "all-gather")}


@pytest.mark.parametrize(("family", "stage"), diagonals(DROPPING, DIVIDED, every=6))
def test_ranks_with_other_tokens_and_heads_drop_what_one_rank_drops(two, family, stage):
    settings = ("model.dropout=0.2",)
    compare(two.run(take_steps, family, DIVIDED[stage], settings), alone(family, settings))
