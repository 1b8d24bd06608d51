"""Layouts of ranks: those that a model can't have, and the axes of a recipe."""

import pytest

from qkv.nn.cost.plan.layout import AXES, RankLayout, check
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.published_models import spec_of


@pytest.fixture(scope="module")
def gpt2() -> ModelWork:
    return work("gpt2", spec_of("gpt2", {}), 1024)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (RankLayout(data=3), r"data 3 = 3 ranks, not 8; data can be 8"),
        (
            RankLayout(data=2, tensor=8),
            r"data 2 × tensor 8 = 16 ranks, not 8; data × tensor can be 8 × 1, 4 × 2, 2 × 4, 1 × 8",
        ),
        (RankLayout(tensor=8), r"scale.tensor=8 does not divide the 12 heads of gpt2; it can be 1, 2, 3, 4, 6, 12"),
        (RankLayout(expert=8), r"scale.expert=8 divides the experts of mixtures, and this model has none"),
        (RankLayout(pipeline=16, data=1), r"16 ranks, not 8"),
        (
            RankLayout(data=8),
            r"a batch of 12 rows can't be divided over 8 replicas; data × shard × expert can be 1, 2, 3, 4, 6, 12",
        ),
    ],
)
def test_layouts_that_do_not_fit(layout: RankLayout, message: str, gpt2: ModelWork) -> None:
    with pytest.raises(ValueError, match=message):
        check(layout, gpt2, 8, 12)


def test_more_stages_than_layers_and_much_context(gpt2: ModelWork) -> None:
    with pytest.raises(ValueError, match="pipeline=16 is more than the 12 layers of this model; it can be 1 to 12"):
        check(RankLayout(pipeline=16), gpt2)
    check(RankLayout(context=3), gpt2)  # the last ranks have padding
    with pytest.raises(ValueError, match="context=2048 is more than the 1024 tokens of a row of gpt2"):
        check(RankLayout(context=2048), gpt2)


def test_axes_match_a_recipe() -> None:
    from qkv.training.parallel.scale import AXES as MESH

    assert AXES == MESH
