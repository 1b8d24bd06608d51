"""Where models look: which samples are drawn, and the attention of tasks over texts, series and pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
import run_tiny
import torch

from qkv.core.layout import Grid
from qkv.look.attention_picture import Picture, load
from qkv.look.patch_attention import PatchPicture
from qkv.nn.layers.patches import masked_layout
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.report import attention
from qkv.runs.report.attention import choose
from qkv.runs.report.report import write_report
from qkv.runs.train.train import train


def test_samples_are_chosen_right_first_then_other_tags_then_long():
    made = [
        {"source": "<de> a", "target": "x", "output": "y"},
        {"source": "<de> aa", "target": "x", "output": "x"},
        {"source": "<de> aaa", "target": "x", "output": "x "},
        {"source": "<fr> a", "target": "x", "output": "x"},
        {"source": "<ja> a", "target": "x", "output": ""},
    ]
    assert [s["source"] for s in choose(made)] == ["<de> aaa", "<fr> a"]
    assert choose([made[-1]]) == []


def test_a_translator_that_writes_nothing_reads_the_truth(tmp_path: Path) -> None:
    run = run_tiny.translator(tmp_path)
    for output, note in (("b a", ""), ("", "The model writes nothing here, so the truth stands in its place")):
        write_report(run, [{"source": "a b", "target": "b a", "output": output}])
        (picture,) = load(run / "attention.json")
        assert isinstance(picture, Picture) and picture.rows[:2] == ["b", "a"] and picture.note == note
        assert '"groups":[{"name":"encoder"' in (run / "attention.html").read_text(encoding="utf-8")


SMALL = (
    "model.d_model=16",
    "model.n_layers=2",
    "model.n_heads=2",
    "model.d_ff=16",
    "training.max_steps=1",
    "evaluation.examples=4",
    "evaluation.test_examples=4",
)


def trained(folder: Path, recipe: str, *settings: str) -> Path:
    train(Recipe.load(recipe, [*SMALL, *settings]), folder / recipe, device="cpu")
    return folder / recipe


def test_texts_of_a_task_are_drawn_with_their_prediction(tmp_path: Path) -> None:
    run = trained(tmp_path, "classify", "data.train=60", "tokenizer.vocab_size=200")
    first, second = load(run / "attention.json")
    assert isinstance(first, Picture) and first.title.startswith("Test split, example 1: ")
    assert second.title.startswith("Test split, example 2: ")
    assert first.rows == first.columns and first.rows[0] == "[CLS]"
    assert [name for name, _ in first.facts] == ["model", "truth"]
    assert sum(first.layers[1]["weights"][0][0]) == pytest.approx(1, abs=0.01)
    assert 'aria-label="layer 2, head 2"' in (run / "report.html").read_text()
    assert '<a href="attention.html">' in (run / "report.html").read_text()
    page = (run / "attention.html").read_text(encoding="utf-8")
    assert f'"text":"{first.title}"'.replace("&", "\\u0026") in page and "<script" in page


def test_pictures_are_drawn_under_their_patches(tmp_path: Path) -> None:
    run = trained(tmp_path, "vit")
    (first, _) = load(run / "attention.json")
    assert isinstance(first, PatchPicture) and (first.grid, first.size) == ([4, 4], [8, 8])
    assert first.query == " and of all patches" and len(first.layers) == 2
    assert len(first.layers[0]["weights"]) == 2 and len(first.layers[0]["weights"][0]) == 16


def test_captions_show_each_word_on_the_picture(tmp_path: Path) -> None:
    run = trained(tmp_path, "caption", "data.train=40", "model.decoder_layers=1")
    (first, _) = load(run / "attention.json")
    assert isinstance(first, PatchPicture) and first.grid == [8, 8] and len(first.layers) == 1
    truth = dict(first.facts)["truth"].split()
    assert [label for label, _ in first.words] == truth[: len(first.words)] and len(first.words[0][1]) == 64


def test_series_are_labelled_by_their_steps(tmp_path: Path) -> None:
    run = trained(tmp_path, "forecast")
    (first, _) = load(run / "attention.json")
    assert isinstance(first, Picture) and len(first.rows) == 12 and (first.rows[0], first.rows[-1]) == ("1–8", "89–96")


def test_chats_are_drawn_around_the_reply(tmp_path: Path) -> None:
    run = run_tiny.assistant(tmp_path)
    (picture,) = load(run / "attention.json")
    assert isinstance(picture, Picture) and picture.title.endswith(" + 1?")
    assert "assistant" in "".join(picture.rows) and picture.facts[0][0] == "model"
    weights = torch.tensor(picture.layers[0]["weights"][0])
    assert weights.shape == (len(picture.rows),) * 2 and torch.equal(weights, weights.tril())
    assert "Conversations" in (run / "report.html").read_text()


def test_without_its_data_a_run_shows_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path, "vit")

    def lost(*_: object) -> None:
        raise ValueError("the data are gone")

    monkeypatch.setattr(attention, "_batch", lost)
    assert "covered in blue" in write_report(run).read_text()
    (run / "attention.json").unlink()
    assert "Not drawn, because the run can&#39;t be loaded: the data are gone" in write_report(run).read_text()


def test_visible_patches_are_labelled_by_row_and_column() -> None:
    noise = torch.tensor([[9.0, 0, 8, 7, 6, 5, 4, 1]])  # patches 1 and 7 of 2 × 4 are kept
    assert attention._visible_patches(masked_layout(Grid(2, 4, 1), noise)) == ["class", "1,2", "2,4"]


def test_high_pitches_of_sounds_are_at_the_top(tmp_path: Path) -> None:
    (first, _) = load(trained(tmp_path, "speech", "data.train=40") / "attention.json")
    assert isinstance(first, PatchPicture) and first.upward
