"""The cost of an ablation is told before its first run."""

from __future__ import annotations

from pathlib import Path

import pytest

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.study import run_ablation


def test_a_grid_too_large_for_the_time_is_refused_before_the_first_run(text_recipe: Path, tmp_path: Path) -> None:
    ablation = Ablation.load(text_recipe, ["training.max_steps=1000000"], parts=["norm"], seeds=3)
    with pytest.raises(ValueError, match=r"the 6 runs would take about .* more than --time 1 min; give fewer"):
        run_ablation(ablation, tmp_path / "out", device="cpu", limit=60)
    assert not (tmp_path / "out").exists()
