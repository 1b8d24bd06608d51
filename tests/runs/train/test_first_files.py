"""The first files of a run, and its first words: notes are printed once, and an old run stays until the new is done."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from run_tiny import TINY

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train


def test_notes_are_printed_once(tmp_path: Path) -> None:
    lines = "".join(f"{n} cats\t{n} Katzen\n" for n in range(120)) + "\t\n" * 3
    (tmp_path / "own.tsv").write_text(lines, encoding="utf-8")
    small = [text for text in TINY if not text.startswith("data.")]
    settings = [
        *small,
        "tokenizer.vocab_size=300",
        "batching.max_length=32",
        f"data.path={tmp_path / 'own.tsv'}",
        "data.header=false",
    ]
    sessions = []
    for steps in (2, 4):
        out = io.StringIO()
        recipe = Recipe.load("translate", [*settings, f"training.max_steps={steps}"])
        train(recipe, tmp_path / "run", resume=True, device="cpu", console=Console(file=out, width=300))
        sessions.append(out.getvalue())
    notes = recipe.data.notes()
    assert notes and [sessions[0].count(note) for note in notes] == [1] * len(notes)
    assert not any(note in sessions[1] for note in notes)
    assert "First example" in sessions[0] and "First example" not in sessions[1]
    assert "Resumed after step 2" in sessions[1]
