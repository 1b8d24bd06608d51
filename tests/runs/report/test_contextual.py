"""The recipe `contextual`: one static vector for a word, whose meanings part after a layer of attention."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qkv.data.tokenizers.tokenizer import train as train_tokenizer
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.report import contextual
from qkv.runs.report.report import write_report
from qkv.runs.report.story import Story
from qkv.runs.train.train import train

SMALL = (
    *("data.words=[bank,seal]", "model.n_layers=2"),
    *("evaluation.test_examples=8", "evaluation.examples=8"),
)


def trained(folder: Path, steps: int) -> Path:
    every = [f"training.{name}={steps}" for name in ("max_steps", "eval_every", "save_every")]
    train(Recipe.load("contextual", [*SMALL, *every]), folder, device="cpu")
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("contextual") / "run", steps=3)


@pytest.mark.slow
def test_meanings_part_after_a_layer_and_only_by_training(tmp_path: Path) -> None:
    run_dir = trained(tmp_path / "run", steps=150)
    found = json.loads((run_dir / contextual.SENSES).read_text())
    assert set(found) == {"trained", "untrained"} and set(found["trained"]) == {"bank", "seal"}
    for word, layers in found["trained"].items():
        assert layers["embedding"] == 0
        assert layers["layer 2"] > 2 > 2 * found["untrained"][word]["layer 2"]


def test_the_report_shows_every_word_before_and_after_each_layer(run_dir: Path) -> None:
    page = (run_dir / "report.html").read_text(encoding="utf-8")
    for title in ("bank: embedding", "bank: layer 1", "seal: embedding", "seal: layer 2"):
        assert page.count(f'chart-title">{title}') == 1
    assert "one point for all" in page and "Separation of meanings" in page
    assert "we rowed down the river" in page


def test_the_first_meaning_stands_on_the_left(run_dir: Path) -> None:
    trained, _ = contextual.look(Story.read(run_dir))
    for word in trained:
        assert len(word.texts) == len(word.groups) and set(word.groups) == {0, 1} and len(word.draw()) == 3
        assert all(word.word in text.split() for text in word.texts)


def test_a_run_that_can_not_be_loaded_is_reported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("name: x\ndata: {kind: senses}\n")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "Meanings" in page and "Not drawn, because the run can" in page


def test_the_word_is_found_behind_its_pieces() -> None:
    tokenizer = train_tokenizer("char", ["river bank"])
    assert contextual._place(tokenizer, tokenizer.encode("a bank"), "bank") == 5
    with pytest.raises(ValueError, match="does not give the word 'bank' back"):
        contextual._place(tokenizer, tokenizer.encode("river"), "bank")
