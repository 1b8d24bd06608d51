"""Settings of generation that a recipe takes over from the model that it continues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_untrained import of, words

from qkv.generation import Generation
from qkv.runs.recipes.continued_generation import completed, in_tree, notes, said


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A Hub directory that samples."""
    folder = of("gpt2", words(), "continue", max_positions=64).save(tmp_path / "hub", to="hub")
    settings = {"do_sample": True, "temperature": 0.7, "top_k": 7, "max_new_tokens": 9, "min_new_tokens": 4}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    return str(folder)


def test_a_hub_directory_settles_what_it_says(directory: str) -> None:
    settled = said(directory, "lm")
    assert (settled["temperature"], settled["top_k"], settled["max_new_tokens"]) == (0.7, 7, 9)
    assert settled["top_p"] == 1.0  # what it leaves out is as in transformers, and not as the recipe says


def test_what_a_recipe_gives_counts_before_it(directory: str) -> None:
    made = completed(Generation(temperature=0.5), directory, "lm")
    assert (made.temperature, made.top_k, made.max_new_tokens) == (0.5, 7, 9)
    greedy = completed(Generation(do_sample=False), directory, "lm")
    assert (greedy.temperature, greedy.top_k, greedy.max_new_tokens) == (None, None, 9)
    assert completed(Generation(num_beams=3), directory, "lm").temperature is None
    short = completed(Generation(max_new_tokens=2), directory, "lm")
    assert (short.max_new_tokens, short.min_new_tokens) == (2, Generation().min_new_tokens)


def test_a_recipes_settings_are_replaced_but_not_the_users(directory: str) -> None:
    tree = {"name": "lm", "generation": {"temperature": 0.9, "max_new_tokens": 30, "repetition_penalty": 1.1}}
    kept = in_tree(tree, directory, [["generation", "temperature"]])["generation"]
    assert (kept["temperature"], kept["max_new_tokens"], kept["repetition_penalty"]) == (0.9, 9, 1.0)
    assert in_tree(tree, directory, [["generation"]]) is tree
    assert in_tree(tree, str(Path(directory) / "gone"), []) is tree  # the error is left to validation


def test_a_training_says_what_it_takes_over(directory: str, trained: Path) -> None:
    (note,) = notes(Generation(), directory, "lm")
    assert "temperature=0.7" in note and "max_new_tokens=9" in note and directory in note
    assert not list(notes(Generation(), str(trained), "another recipe"))
