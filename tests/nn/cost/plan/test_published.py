"""Each published run is held to its tolerance; those beyond it are named."""

import pytest

from qkv.nn.cost.plan.published import TOLERANCE, Published, compare, published_runs
from qkv.nn.cost.plan.work import work
from qkv.runs.planning.published_models import spec_of

RUNS = published_runs()
BEYOND = {
    "Llama 8B, 8 H100, FSDP, CP 2, 65,536 tokens, fp8": 0.20,
    "MPT 30B, 8 H100, FSDP, 8,192 tokens": 0.25,  # memory is nearly full, which the model does not know
}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_throughput_is_within_15_percent(run: Published) -> None:
    found = compare(run, spec_of)
    assert abs(found.error) <= BEYOND.get(run.name, TOLERANCE)
    assert found.within == (run.name not in BEYOND)


def test_most_rows_were_not_calibrated() -> None:
    assert sum(run.calibrated for run in RUNS) == 15
    assert len(RUNS) - 15 >= 45
    assert all(run.source for run in RUNS)


def test_gpus_of_a_run_match_its_layout() -> None:
    for run in RUNS:
        assert f"{run.layout.ranks:,} " in run.name


@pytest.mark.parametrize("run", [run for run in RUNS if run.memory_gib], ids=lambda run: run.name)
def test_memory_is_within_30_percent_of_what_torchtitan_reports(run: Published) -> None:
    held = compare(run, spec_of).memory.needed / 2**30
    assert abs(held / (run.memory_gib or 1) - 1) < 0.3


@pytest.mark.parametrize("run", [run for run in RUNS if "foundry" in run.kernels], ids=lambda run: run.name)
def test_what_ran_fits_into_its_device(run: Published) -> None:
    """The source gives no memory, but the largest number of rows that fits."""
    assert compare(run, spec_of).memory.needed <= 1.03 * run.device.memory


def test_published_sizes_have_their_parameters() -> None:
    """The names of the models are their parameters."""
    models = {run.name.split(",")[0]: run.model for run in RUNS}
    for name, billions in (("Llama 8B", 8.0), ("Llama 70B", 70.6), ("Llama 405B", 405.9), ("GPT 1T", 1008.0)):
        preset, sizes = models[name]
        counted = work("llama", spec_of(preset, sizes), 128).parameters
        assert counted == spec_of(preset, sizes).n_parameters
        assert counted / 1e9 == pytest.approx(billions, rel=0.01)
