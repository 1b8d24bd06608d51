"""`python -m bench planner`: published runs are read from a file, and predicted with the kernels of their frameworks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.planner import main, read

from qkv.nn.cost.plan.published import FP8_2025, TITAN, compare, published_runs
from qkv.runs.planning.published_models import spec_of

MPT = {
    "source": "LLM-Foundry, a table",
    "device": "H100 80GB, NVLink 4 + NDR",
    "model": "MPT 7b: d_model 4096",
    "d_model": 4096,
    "n_heads": 32,
    "n_layers": 32,
    "length": 8192,
    "gpus": 8,
    "microbatch": 8,
    "accumulation": 2,
    "zero": 3,
    "activation_checkpointing": True,
    "tokens_per_second_per_gpu": 6935,
}
LLAMA = {
    "source": "torchtitan, a page",
    "device": "H200, fp8, compiled",
    "model": "Llama 3.1 8B",
    "length": 8192,
    "gpus": 32,
    "microbatch": 2,
    "activation_checkpointing": "selective, by operators",
    "tokens_per_second_per_gpu": 10000,
    "gib_per_gpu": 50.0,
}


def written(folder: Path, points: Any) -> Path:
    path = folder / "points.json"
    path.write_text(json.dumps(points))
    return path


def test_a_point_has_the_layout_and_the_kernels_of_its_framework(tmp_path: Path) -> None:
    mpt, llama, plain = read(written(tmp_path, [MPT, LLAMA, {**LLAMA, "device": "A100 80GB x 64, FSDP"}]))
    same = next(run for run in published_runs() if run.name == "MPT 7B, 8 H100, FSDP, 8,192 tokens")
    assert (mpt.layout, mpt.how, mpt.machine, mpt.model) == (same.layout, same.how, same.machine, same.model)
    assert compare(mpt, spec_of).error == compare(same, spec_of).error
    assert (llama.how, plain.how, llama.layout.recompute) == (FP8_2025, TITAN, "products")


def test_a_model_that_is_named_alone_has_all_its_layers(tmp_path: Path) -> None:
    point = {**LLAMA, "device": "A100 80GB x 64, FSDP", "model": "Llama 2 13B", "length": 4096, "gpus": 64}
    (named,) = read(written(tmp_path, [point]))
    same = replace(named, model=("llama-2-13b", {"n_layers": 40}))
    alone, given = (compare(run, spec_of) for run in (named, same))
    assert alone.predicted == pytest.approx(given.predicted, rel=1e-9)
    assert alone.memory.needed == pytest.approx(given.memory.needed, rel=1e-9)
    assert alone.memory.weights == pytest.approx(
        4 * 13_015_864_320 / 64, rel=1e-3
    )  # of meta-llama/Llama-2-13b-hf, fp32


def test_parameters_that_stay_gathered_are_gathered_once(tmp_path: Path) -> None:
    kept, again = (compare(run, spec_of) for run in read(written(tmp_path, [{**MPT, "zero": 2}, MPT])))
    sent = [one.step.communication[0].seconds for one in (kept, again)]
    assert sent[0] == pytest.approx(3 / 4 * sent[1], rel=1e-3)  # gathered in two bytes, twice or once; summed in four
    assert kept.memory.gathered > 5 * again.memory.gathered


def test_the_command_prints_a_table(tmp_path: Path, capsys: Any) -> None:
    assert main([str(written(tmp_path, [MPT, LLAMA]))]) == 0
    printed = capsys.readouterr().out
    assert "| MPT 7b, 8 H100, 8,192 tokens | 2 × 8 | blocks | 6,935 |" in printed
    assert "2 of 2 are within 15%" in printed


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (None, "No such file"),
        ({}, "it should be a list of objects"),
        ([{**MPT, "gpus": 8}, {}], "in entry 1, 'gpus' is missing or not known"),
        ([{**LLAMA, "model": "Llama 9"}], "in entry 0, 'Llama 9' is missing or not known"),
    ],
)
def test_a_file_that_is_missing_or_holds_something_else(points: Any, message: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "points.json" if points is None else written(tmp_path, points)
    assert main([str(path)]) == 2
    assert message in capsys.readouterr().err
