"""One run of an ablation."""

from __future__ import annotations

from pathlib import Path

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.study import run_ablation


def test_a_divergence_is_a_row(text_recipe: Path, tmp_path: Path) -> None:
    settings = ["training.max_bad_steps=1", "training.clip_norm=null", "training.max_steps=6"]
    ablation = Ablation.load(
        text_recipe, settings, vary=["training.optimizer={kind: adamw, lr: 1e-3},{kind: sgd, lr: 1e38}"], seeds=1
    )
    done = run_ablation(ablation, tmp_path / "out", device="cpu")
    good, bad = done.summary.rows
    assert good.finished == (0,) and not bad.finished and bad.diverged == (0,) and not bad.metrics
    assert "1 diverged" in (tmp_path / "out" / "table.md").read_text()
    assert "Diverged, and left out of the means" in (tmp_path / "out" / "report.html").read_text()
    again = run_ablation(ablation, tmp_path / "out", device="cpu", resume=True)
    assert again.summary.rows[1].diverged == (0,)
