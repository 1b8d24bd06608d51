"""Tensor parallelism with fewer key-value heads than ranks: the steps of one rank in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import fast
from safetensors.torch import load_file
from same_steps import alone, compare, take_steps, train_to

from qkv.core.ranks import ALONE

pytestmark = pytest.mark.xdist_group("ranks")
ONE = "'*.blocks.*.attention.n_kv_heads': 1"
TWO = "'*.blocks.*.attention.n_kv_heads': 2"


def replaced(*changes: str) -> str:
    return f"model.replace={{{', '.join(changes)}}}"


@pytest.mark.parametrize(
    "optimizer", fast(["adamw", "muon", "adafactor", "adamw-8bit, block: 16, min_size: 64"], "muon")
)
def test_one_key_value_head_on_two_ranks(two: Any, optimizer: str) -> None:
    settings = (replaced(ONE, "decoder.position: rotary"), f"training.optimizer={{kind: {optimizer}, lr: 0.01}}")
    compare(two.run(take_steps, "decoder", {"tensor": 2}, settings), alone("decoder", settings))


@pytest.mark.parametrize(
    "change",
    [
        "'*.blocks.*.attention.qk_norm': rmsnorm",
        pytest.param("'*.blocks.*.attention.bias': true", marks=pytest.mark.slow),
    ],
)
def test_norms_and_biases_of_shared_heads(two: Any, change: str) -> None:
    settings = (replaced(ONE, change), "training.clip_norm=0.1", "training.accumulate=2")
    compare(two.run(take_steps, "encoder-decoder", {"tensor": 2}, settings), alone("encoder-decoder", settings))


OTHERS = {
    "tensor 4": {"tensor": 4},
    "zero 3": {"tensor": 2, "shard": 2},
    "zero 1": {"tensor": 2, "shard": 2, "zero": 1},
    "context": {"tensor": 2, "context": 2},
    "pipeline": {"tensor": 2, "pipeline": 2},
    "zb-h1": {"tensor": 2, "pipeline": 2, "pipeline_schedule": "zb-h1"},
}


@pytest.mark.slow
@pytest.mark.parametrize("heads", [ONE, TWO])
@pytest.mark.parametrize("layout", OTHERS)
def test_shared_heads_with_other_axes(four: Any, layout: str, heads: str) -> None:
    settings = (
        replaced(heads),
        *(("training.accumulate=4", "model.n_layers=4") if "pipeline" in OTHERS[layout] else ()),
    )
    compare(four.run(take_steps, "decoder", OTHERS[layout], settings), alone("decoder", settings))


def test_a_checkpoint_has_shared_heads_once_and_continues_on_one_rank(two: Any, tmp_path: Path) -> None:
    settings = ("model.replace={'*.blocks.*.attention.n_kv_heads': 1, '*.blocks.*.cross.n_kv_heads': 1}",)
    train_one = (*settings,)
    two.run(train_to, str(tmp_path / "two"), 3, {"tensor": 2}, train_one)
    train_to(ALONE, str(tmp_path / "two"), 6, None, train_one, resume=True)
    train_to(ALONE, str(tmp_path / "one"), 6, None, train_one)
    found, wanted = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-10, msg=name)
