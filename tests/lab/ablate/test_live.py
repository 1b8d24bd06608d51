"""The live table of an ablation: means of finished runs, the step of the run in training, lines elsewhere."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from qkv.lab.ablate.ablation import Ablation
from qkv.lab.ablate.live import AblationProgress
from qkv.lab.ablate.single_run import RunResult


def test_finished_and_running_variants_are_shown(pairs: list[str], tmp_path: Path) -> None:
    ablation = Ablation.load("localise", pairs, parts=["norm"], seeds=2)
    first, second = ablation.variants
    results: dict[tuple[str, int], RunResult] = {}
    said = StringIO()
    progress = AblationProgress(ablation, results, Console(file=said, width=160))
    progress.begin((first, 0), tmp_path / "a")
    results[first, 0] = RunResult("finished", metrics={"loss": 1.5})
    progress.done((first, 0), results[first, 0])
    assert said.getvalue().startswith("1/4 baseline, seed 0: Loss 1.5") and "left" in said.getvalue()
    results[first, 1] = RunResult("diverged")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "metrics.jsonl").write_text('{"type": "train", "step": 1200, "loss": 2.25}\n{"type": "ev')
    progress.begin((second, 0), tmp_path / "b")
    Console(file=said, width=160).print(progress.table())
    row, other = said.getvalue().splitlines()[-3:-1]
    assert row.split()[:3] == ["baseline", "2/2", "1.5"] and row.rstrip().endswith("1 diverged")
    assert "0/2" in other and other.rstrip().endswith("seed 0: step 1,200, loss 2.250")
