"""A page on several runs: what differs, and what each put out for the same inputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from qkv.runs.report.side_by_side import write_side_by_side


def run(folder: Path, rate: float, output: str, ended: bool = True) -> Path:
    folder.mkdir()
    (folder / "recipe.yaml").write_text(f"name: x\ntraining: {{optimizer: {{lr: {rate}}}, max_steps: 9}}\n")
    lines = [
        {"type": "event", "step": 0, "event": "started"},
        *({"type": "train", "step": step, "nll": rate / step} for step in (1, 2)),
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if ended:
        evaluation = {"split": "test", "examples": 2, "metrics": {"exact_match": rate, "loss": 1.5}}
        (folder / "evaluation.json").write_text(json.dumps(evaluation))
    samples = [{"source": "<a>", "target": "right", "output": output}, {"source": output, "output": "other"}]
    (folder / "samples.json").write_text(json.dumps(samples))
    return folder


def rows(page: str, label: str) -> list[list[str]]:
    """The texts of the rows of one table."""
    table = page.split(f'aria-label="{label}"')[1].split("</table>")[0]
    return [re.findall(r">([^<>]+)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", table)]


def test_runs_are_compared(tmp_path: Path) -> None:
    first, second = run(tmp_path / "first", 0.5, "right"), run(tmp_path / "second", 0.25, "<b>wrong")
    write_side_by_side([first, second], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    names = ["first", "second"]
    assert rows(page, "Results") == [
        ["metric", *names],
        ["Exact match", "50.00 %", "25.00 %"],
        ["Loss", "1.5", "1.5"],
    ]
    assert rows(page, "Settings") == [["setting", *names], ["training.optimizer.lr", "0.5", "0.25"]]
    assert rows(page, "Samples") == [["input", "truth", *names], ["&lt;a&gt;", "right", "right", "&lt;b&gt;wrong"]]
    assert "Training loss" in page and "<script" not in page and "has not ended" not in page


def test_equal_settings_and_unfinished_runs_are_named(tmp_path: Path) -> None:
    runs = [run(tmp_path / "a", 0.5, "x"), run(tmp_path / "b", 0.5, "x", ended=False)]
    write_side_by_side(runs, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "All settings are the same." in page
    assert "b: This training has not ended" in page
    assert rows(page, "Results")[1] == ["Exact match", "50.00 %", "–"]


def test_of_many_differing_settings_the_important_ones_come_first_and_the_others_are_folded(tmp_path: Path) -> None:
    runs = [run(tmp_path / name, rate, "x") for name, rate in (("a", 0.5), ("b", 0.25))]
    for folder, kind in zip(runs, ("text", "jsonl"), strict=True):
        more = "".join(f"  field{i}: {kind}{i}\n" for i in range(12))
        with (folder / "recipe.yaml").open("a") as file:
            file.write(f"data:\n{more}  kind: {kind}\n")
    write_side_by_side(runs, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [row[0] for row in rows(page, "Settings")] == ["setting", "data.kind", "training.optimizer.lr"]
    assert [row[0] for row in rows(page, "More settings")] == ["setting", *(f"data.field{i}" for i in range(12))]
    assert "<summary>12 more settings that differ</summary>" in page


def test_the_page_is_called_a_comparison(tmp_path: Path) -> None:
    write_side_by_side([run(tmp_path / "a", 0.5, "x"), run(tmp_path / "b", 0.5, "x")], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "</b> comparison</p>" in page and "training report" not in page


def test_the_page_is_titled_by_names_and_not_by_absolute_paths(tmp_path: Path) -> None:
    folders = [tmp_path / "runs" / name / "out" for name in ("one", "two")]
    for folder in folders:
        folder.parent.mkdir(parents=True)
    write_side_by_side([run(folder, 0.5, "x") for folder in folders], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>one/out · two/out · qkv</title>" in page and str(tmp_path) not in page
