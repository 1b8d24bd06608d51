"""The search: layouts divide ranks and batch, fit into memory, and the first is the fastest."""

from dataclasses import replace

import pytest

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.layout import AXES, RankLayout, check, divisors, factorizations
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.rank_memory import memory
from qkv.nn.cost.plan.search import nearest, plan, search
from qkv.nn.cost.plan.simulate import simulate, sizes
from qkv.nn.cost.plan.step import Machine, step
from qkv.nn.cost.plan.work import ModelWork, work
from qkv.runs.planning.published_models import spec_of

H100 = Machine(KNOWN["h100"], network("nvlink4-ndr"), kernels("h100"), QKV)
A_SMALL_GPU = replace(H100, device=replace(KNOWN["h100"], memory=8e9))


@pytest.fixture(scope="module")
def gpt2() -> ModelWork:
    return work("gpt2", spec_of("gpt2", {}), 1024)


@pytest.fixture(scope="module")
def llama() -> ModelWork:
    return work("llama-3-8b", spec_of("llama-3-8b", {"n_layers": 8}), 8192)


def test_layouts_divide_ranks_and_batch_fit_and_are_ordered(llama: ModelWork) -> None:
    found = search(llama, H100, 16, 32)
    assert len(found) > 10
    for one in found:
        check(one.layout, llama, 16, 32)
        assert one.layout.batch == 32
        assert one.memory.needed <= 80e9
    seconds = [one.step.seconds for one in found]
    assert seconds[0] <= 1.03 * min(seconds)
    assert seconds[1:] == sorted(seconds[1:])


def test_no_layout_by_brute_force_is_faster(gpt2: ModelWork) -> None:
    """Of all sizes of the axes, not only those that the search visits."""
    fastest = min(one.step.seconds for one in search(gpt2, H100, 8, 16))
    for sizes_ in factorizations(8, 4):
        pipeline, data, shard, tensor = sizes_
        for zero in (0,) if shard == 1 else (1, 2, 3):
            for many in divisors(16 // (data * shard)) if 16 % (data * shard) == 0 else []:
                layout = RankLayout(
                    pipeline, data, shard, tensor=tensor, zero=zero, microbatches=many, rows=16 // (data * shard * many)
                )
                try:
                    check(layout, gpt2, 8, 16)
                except ValueError:
                    continue
                assert step(gpt2, layout, H100).seconds >= fastest * 0.99


def test_nothing_fits_says_how_many_ranks_would() -> None:
    model = work("llama-3-8b", spec_of("llama-3-8b", {}), 8192)
    with pytest.raises(ValueError, match=r"takes .* GB of 8.0 GB; .* fits on \d+, with a batch of \d+ rows"):
        search(model, A_SMALL_GPU, 2, 4)


def test_a_layout_that_does_not_fit_names_the_nearest_that_does(llama: ModelWork) -> None:
    given = plan(llama, RankLayout(data=16, rows=2), A_SMALL_GPU)
    assert not given.fits(A_SMALL_GPU)
    message = str(nearest(llama, given, A_SMALL_GPU, 32))
    assert "data 16 of llama-3-8b takes" in message
    assert "and h100 has 8.0 GB; the nearest that fits is" in message


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


def test_zero_divides_and_overlap_hides(llama: ModelWork) -> None:
    stages = [memory(llama, RankLayout(shard=8, zero=zero), QKV) for zero in (1, 2, 3)]
    assert stages[0].states > stages[1].states > stages[2].states
    without = step(llama, RankLayout(shard=8, zero=3), replace(H100, how=replace(QKV, data_overlap=False)))
    assert without.exposed > 5 * step(llama, RankLayout(shard=8, zero=3), H100).exposed


def test_the_bubble_is_narayanans(llama: ModelWork) -> None:
    layout = RankLayout(pipeline=4, microbatches=8)
    found = step(llama, layout, H100)
    one = (found.seconds - found.bubble - found.compute["optimizer"]) / 8
    assert found.bubble == pytest.approx(3 * one, rel=0.05)
    assert step(llama, replace(layout, chunks=2), H100).bubble == pytest.approx(found.bubble / 2)


def test_simulation_of_weak_and_strong_scaling(gpt2: ModelWork) -> None:
    points = simulate(gpt2, H100, sizes(8, 64), 32)
    assert [(point.kind, point.ranks, point.batch) for point in points[:4]] == [
        ("weak", 8, 32), ("weak", 16, 64), ("weak", 32, 128), ("weak", 64, 256)
    ]  # fmt: skip
    assert {point.batch for point in points[4:]} == {128}
    strong = [point.plan.step.seconds for point in points[4:] if point.plan]
    assert strong == sorted(strong, reverse=True)


def test_axes_match_a_recipe() -> None:
    from qkv.training.parallel.scale import AXES as MESH

    assert AXES == MESH
