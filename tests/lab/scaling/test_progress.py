"""The live table: losses of finished runs, the share of steps of the others."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console
from small_study import small_study

from qkv.lab.scaling.ladder import ladder
from qkv.lab.scaling.progress import shown, table
from qkv.lab.scaling.runs import Outcome


def test_the_table_tells_how_far_runs_are(tmp_path: Path) -> None:
    rungs = ladder(small_study(tmp_path))[:4]
    running = tmp_path / rungs[2].name
    running.mkdir()
    (running / "metrics.jsonl").write_text(f'{{"type": "train", "step": {rungs[2].steps // 2}}}\n')
    outcomes = {rungs[0].name: Outcome(2.5, 1.0), rungs[1].name: Outcome(diverged="NaN")}
    text = StringIO()
    console = Console(file=text, width=120)
    console.print(table(rungs, outcomes, tmp_path))
    lines = text.getvalue().splitlines()
    assert lines[1].endswith("2.5000") and lines[2].endswith("diverged") and lines[3].rstrip().endswith("%")
    with shown(rungs, outcomes, tmp_path, console):  # not a terminal: nothing is drawn
        pass
    assert text.getvalue().splitlines() == lines
