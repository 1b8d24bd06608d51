from __future__ import annotations

from pathlib import Path

import pytest
from run_tiny import LANGUAGE_MODEL, TINY, write_text

from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train import batch_preview
from qkv.runs.train.batch_preview import preview, sizes


def test_pairs_as_the_model_sees_them() -> None:
    found = preview(Recipe.load("reverse", TINY))
    row = found.rows[0]
    assert row.source is not None and row.source[-1] == "</s>"
    assert row.input == ["<s>", *row.label[:-1]] and row.label[-1] == "</s>"
    assert row.label[:-1] == row.source[:-1][::-1]
    assert found.counted > 0 and found.slots <= 256
    assert "labels counted" in str(found)


def test_running_text_has_labels_one_step_ahead(tmp_path: Path) -> None:
    settings = [*LANGUAGE_MODEL, f"data.path={write_text(tmp_path)}", "data.documents=line"]
    row = preview(Recipe.load("lm", settings)).rows[0]
    assert row.source is None
    agreeing = [label == after for label, after in zip(row.label_ids, row.input_ids[1:], strict=False) if label != -100]
    assert agreeing and all(agreeing)


def test_the_sizes_of_splits_are_told_and_that_few_examples_choose_by_chance() -> None:
    few = sizes(Recipe.load("reverse", ["data.validation=20", "data.train=300", "data.test=20"]).data)
    assert few.startswith(
        "300 for training, 20 for validation, 20 for test; with so few validation examples, the choice "
        "of the best weights is partly chance"
    )
    assert sizes(Recipe.load("reverse").data) == "20,000 for training, 500 for validation, 500 for test"


def test_the_sizes_of_splits_leave_out_rows_that_are_skipped(tmp_path: Path) -> None:
    """In files and in memory; a table too long to be read is told as such."""
    rows = [f"a text {i},{'x' if i % 5 else 'nan'}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]))
    source = Recipe.load("classify", [f"data.path={tmp_path / 't.csv'}", "data.kind=labelled"]).data
    held = 320 // 10
    assert sizes(source).startswith(
        f"{320 - 2 * held} for training (80 skipped), {held} for validation, {held} for test"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_preview, "READ", 100)
        assert sizes(source).startswith(f"up to {400 - 2 * held} for training, {held} for validation")


def test_the_sizes_of_splits_leave_out_rows_that_repeat_held_out_examples(tmp_path: Path) -> None:
    rows = [f"a text {i // 4},{'x' if i % 8 < 4 else 'y'}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]))
    source = Recipe.load("classify", [f"data.path={tmp_path / 't.csv'}", "data.kind=labelled"]).data
    trained = len(list(source.examples("train", shuffle=False)))
    assert trained == 400 - 4 * 20
    assert sizes(source).startswith(f"{trained} for training, 10 for validation, 10 for test")
