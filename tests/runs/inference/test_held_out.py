"""Batches of a run's data: as many examples as are asked for, of the split that is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_untrained import of, words

from qkv.runs.inference.held_out import batches, recipe_of
from qkv.runs.inference.run import load


def test_batches_are_read_until_there_are_enough_examples(trained: Path) -> None:
    run = load(trained, device="cpu")
    few, more = (batches(run, "train", limit) for limit in (1, 20))
    assert len(few) == 1 and sum(batch.rows for batch in more) >= 20
    assert sum(batch.rows for batch in more[:-1]) < 20
    assert more[0].inputs["ids"].tolist() == few[0].inputs["ids"].tolist()  # not shuffled
    assert batches(run, "validation", 1)[0].texts != few[0].texts


def test_a_run_without_a_recipe_names_no_data() -> None:
    with pytest.raises(ValueError, match=r"has no recipe\.yaml, which names its data"):
        recipe_of(of("gpt2", words(), "continue"))
