"""Notes on data and settings: what they count, and when there is nothing to say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from run_tiny import TINY

from qkv.data.source import Counts
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.notes import data_summary, longest_rows, small_splits, unknown_notes
from qkv.runs.train.tokenizer import make


def test_a_summary_leaves_out_the_notes_that_were_printed_before() -> None:
    counts = Counts(read=4, skipped=Counter({"empty": 3}), notes=("one column", "no header"))
    assert data_summary(counts, ["no header"]).startswith(
        "Most training examples are skipped: 4 examples read; 3 skipped"
    )
    assert "one column" in data_summary(counts, ["no header"]) and "no header" not in data_summary(
        counts, ["no header"]
    )
    assert data_summary(Counts(read=1), []) == "Training data: 1 example read"


def test_small_splits_are_warned_about() -> None:
    assert list(small_splits(Recipe.load("reverse", TINY))) == []
    few = Recipe.load("reverse", [*TINY, "data.train=5", "data.test=1"])
    assert list(small_splits(few)) == [
        "Warning: the train split has 5 examples; too few to learn from.",
        "Warning: the test split has 1 example; metrics on so few are mostly chance.",
    ]


def test_unknown_words_are_counted_in_the_texts_that_there_are(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("".join(f"a {n}\tb\n" for n in range(9)))
    (tmp_path / "other.tsv").write_text("a Z\tb\n")
    paths = [
        f"data.path={tmp_path}/train.tsv",
        *(f"data.{s}_path={tmp_path}/other.tsv" for s in ("validation", "test")),
    ]
    recipe = Recipe.load("translate", [*paths, "tokenizer=char", "data.header=false"])
    (note,) = unknown_notes(recipe, make(recipe))
    assert "in the 2 texts of the validation split is unknown" in note and "'Z'" in note
    assert unknown_notes(recipe, None) == []


def test_the_longest_row_is_named_by_its_setting() -> None:
    recipe = Recipe.load("reverse", TINY)
    assert longest_rows(recipe, recipe.spec()) == (recipe.batching.max_length, "max_length")
    recipe = Recipe.load("lm")
    assert longest_rows(recipe, recipe.spec()) == (recipe.batching.context, "context")
