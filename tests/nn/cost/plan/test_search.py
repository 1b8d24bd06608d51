"""The search: layouts divide ranks and batch, fit into memory, and the first is the fastest."""

from dataclasses import replace

import pytest

from qkv.nn.cost.accelerators import KNOWN
from qkv.nn.cost.plan.execution import QKV, kernels
from qkv.nn.cost.plan.layout import RankLayout, check, divisors, factorizations
from qkv.nn.cost.plan.network import network
from qkv.nn.cost.plan.search import nearest, plan, search
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
