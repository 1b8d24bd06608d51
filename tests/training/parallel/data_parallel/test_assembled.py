"""Optimizers that need whole parameters take the steps of one rank if tensor or expert parallelism divides them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from fast_subset import fast, thinned
from safetensors.torch import load_file
from same_steps import alone, compare, take_steps, train_to

from qkv.core.ranks import ALONE

pytestmark = pytest.mark.xdist_group("ranks")
WHOLE = {
    "muon": "{kind: muon, lr: 0.01}",
    "adafactor": "{kind: adafactor, lr: 0.01}",
    "adamw-8bit": "{kind: adamw-8bit, lr: 0.01, block: 16, min_size: 64}",
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor": 2},
    "expert": {"expert": 2},
    "tensor, zero 1": {"tensor": 2, "shard": 2, "zero": 1},
    "tensor, expert, zero 2": {"tensor": 2, "expert": 2, "shard": 2, "zero": 2},
    "tensor, pipeline": {"tensor": 2, "pipeline": 2},
}


def equals_one(pool: Any, optimizer: str, scale: dict[str, Any]) -> None:
    settings = (f"training.optimizer={WHOLE[optimizer]}", "training.clip_norm=0.5")
    settings += ("training.accumulate=2",) if "pipeline" in scale else ()
    compare(pool.run(take_steps, "moe", scale, settings), alone("moe", settings))


@pytest.mark.parametrize("layout", fast(["tensor", "expert"], "tensor"))
@pytest.mark.parametrize("optimizer", thinned(WHOLE))
def test_two_ranks_equal_one(two: Any, optimizer: str, layout: str) -> None:
    equals_one(two, optimizer, LAYOUTS[layout])


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["tensor, zero 1", "tensor, pipeline"])
@pytest.mark.parametrize("optimizer", WHOLE)
def test_four_ranks_equal_one(four: Any, optimizer: str, layout: str) -> None:
    equals_one(four, optimizer, LAYOUTS[layout])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", WHOLE)
def test_eight_ranks_equal_one(eight: Any, optimizer: str) -> None:
    equals_one(eight, optimizer, LAYOUTS["tensor, expert, zero 2"])


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", WHOLE)
def test_a_run_is_resumed_with_and_without_tensor_parallelism(two: Any, tmp_path: Path, optimizer: str) -> None:
    settings = (f"training.optimizer={WHOLE[optimizer]}",)
    train_to(ALONE, str(tmp_path / "one"), 6, None, settings)
    two.run(train_to, str(tmp_path / "up"), 3, LAYOUTS["tensor"], settings)
    train_to(ALONE, str(tmp_path / "up"), 6, None, settings, True)
    train_to(ALONE, str(tmp_path / "down"), 3, None, settings)
    two.run(train_to, str(tmp_path / "down"), 6, LAYOUTS["tensor"], settings, True)
    wanted = load_file(tmp_path / "one" / "model.safetensors")
    for folder in ("up", "down"):
        found = load_file(tmp_path / folder / "model.safetensors")
        for name, tensor in wanted.items():
            if not name.endswith(".k.bias"):
                torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-10, msg=f"{folder}: {name}")
