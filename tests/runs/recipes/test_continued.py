"""What a task takes over from the trained model that it continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image

from qkv.runs.recipes import continued
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
SCORES = ("data.kind=labelled", "data.score=score", "data.label=null", "task=regress")
SMALL_BERT = {"vocab_size": 50, "max_position_embeddings": 32}


def saved(folder: Path, architecture: str, names: list[str], **sizes: Any) -> str:
    """A Hub model with these names of its labels."""
    made = transformers.ViTConfig if sizes else transformers.BertConfig
    config = made(**SIZES, **(sizes or SMALL_BERT), architectures=[architecture], id2label=dict(enumerate(names)))
    getattr(transformers, architecture)(config).save_pretrained(folder)
    return str(folder)


def labelled(folder: Path, classes: list[str]) -> str:
    rows = "".join(f"word number {i},{name}\n" for i in range(20) for name in classes)
    (folder / "rows.csv").write_text(f"text,label\n{rows}")
    return f"data.path={folder / 'rows.csv'}"


def resolved(recipe: Recipe) -> Recipe:
    return recipe.resolve_data(None)


def classifier(folder: Path, names: list[str], classes: list[str], *more: str) -> tuple[Recipe, Recipe, str]:
    where = saved(folder / "hub", "BertForSequenceClassification", names)
    given = Recipe.load("classify", [f"model={where}", "data.kind=labelled", labelled(folder, classes), *more])
    return given, resolved(given), where


def said(given: Recipe, after: Recipe, where: str) -> str:
    assert given.task is not None and after.task is not None
    return " ".join(continued.notes(given.task, after.task, where))


def test_classes_keep_the_numbers_of_the_trained_output_layer(tmp_path: Path) -> None:
    given, after, where = classifier(tmp_path, ["pos", "neg"], ["neg", "pos"])
    assert after.task.classes == ("pos", "neg") and "are numbered as in" in said(given, after, where)


def test_a_class_that_the_data_lack_keeps_its_output(tmp_path: Path) -> None:
    _, after, _ = classifier(tmp_path, ["pos", "so so", "neg"], ["neg", "pos"])
    assert after.task.classes == ("pos", "so so", "neg") and after.head.labels == 3


def test_new_classes_take_the_outputs_that_are_free_and_this_is_said(tmp_path: Path) -> None:
    given, after, where = classifier(tmp_path, ["pos", "neg"], ["neg", "spam"])
    assert after.task.classes == ("spam", "neg")
    assert said(given, after, where) == (
        f"Warning: {where} does not know all classes of the data; each new class takes the output of a class that the data "
        "lack: 'spam' that of 'pos'."
    )


def test_another_number_of_classes_begins_a_new_output_layer(tmp_path: Path) -> None:
    given, after, where = classifier(tmp_path, ["pos", "neg"], ["c", "a", "b"])
    assert after.task.classes == ("a", "b", "c") and "begins anew" in said(given, after, where)


def test_placeholders_name_no_classes(tmp_path: Path) -> None:
    given, after, where = classifier(tmp_path, ["LABEL_0", "LABEL_1"], ["pos", "neg"])
    assert after.task.classes == ("neg", "pos") and said(given, after, where) == ""


def test_classes_that_are_given_count_and_a_contradiction_is_told(tmp_path: Path) -> None:
    given, after, where = classifier(tmp_path, ["pos", "neg"], ["neg", "pos"], "task.classes=[neg, pos]")
    assert after.task.classes == ("neg", "pos") and "begins with the wrong ones" in said(given, after, where)


def test_an_encoder_without_an_output_layer_has_nothing_to_keep(tmp_path: Path) -> None:
    where = saved(tmp_path / "hub", "BertModel", ["b", "a"])
    after = resolved(Recipe.load("classify", [f"model={where}", "data.kind=labelled", labelled(tmp_path, ["a", "b"])]))
    assert after.task.classes == ("a", "b")


def test_tags_keep_their_numbers(tmp_path: Path) -> None:
    names = ["O", "B-PER", "B-LOC"]
    where = saved(tmp_path / "hub", "BertForTokenClassification", names)
    (tmp_path / "words.conll").write_text("".join(f"Ada{i} B-PER\nsees O\nRome B-LOC\n\n" for i in range(30)))
    more = ["data.kind=columns", f"data.path={tmp_path / 'words.conll'}"]
    after = resolved(Recipe.load("tag", [f"model={where}", *more]))
    assert after.task.tags == ("O", "B-PER", "B-LOC")


@pytest.mark.parametrize("given", [(), ("task.center=2.5",)])
def test_scores_of_a_trained_regression_stay_as_they_are(given: tuple[str, ...], tmp_path: Path) -> None:
    where = saved(tmp_path / "hub", "BertForSequenceClassification", ["LABEL_0"])
    (tmp_path / "rows.csv").write_text("text,score\n" + "".join(f"word {i},{i / 10}\n" for i in range(60)))
    more = [*SCORES, f"data.path={tmp_path / 'rows.csv'}", *given]
    after = resolved(Recipe.load("classify", [f"model={where}", *more]))
    assert (after.task.center, after.task.spread) == (2.5 if given else 0.0, 1.0)


def test_pictures_are_scaled_as_the_directory_says(tmp_path: Path) -> None:
    where = saved(tmp_path / "hub", "ViTForImageClassification", ["z", "a"], image_size=8, patch_size=4)
    for name in ("a", "z"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((8, 8, 3), i * 20, np.uint8)).save(tmp_path / "pictures" / name / f"{i}.png")
    about = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "size": {"height": 8, "width": 8}}
    (tmp_path / "hub" / "preprocessor_config.json").write_text(json.dumps(about))
    given = Recipe.load("vit", [f"model={where}", "data.kind=images", f"data.path={tmp_path / 'pictures'}"])
    after = resolved(given)
    assert after.task.mean == (0.5, 0.4, 0.3) and after.task.std == (0.2, 0.2, 0.2)
    assert "scaled as" in said(given, after, where)


def test_a_preprocessor_that_is_not_supported_is_told_and_the_pictures_are_measured(tmp_path: Path) -> None:
    where = saved(tmp_path / "hub", "ViTForImageClassification", ["z", "a"], image_size=8, patch_size=4)
    for name in ("a", "z"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((8, 8, 3), i * 20, np.uint8)).save(tmp_path / "pictures" / name / f"{i}.png")
    (tmp_path / "hub" / "preprocessor_config.json").write_text(json.dumps({"do_resize": False}))
    with pytest.warns(UserWarning, match="do_resize is false.*scaled by mean and deviation"):
        after = resolved(
            Recipe.load("vit", [f"model={where}", "data.kind=images", f"data.path={tmp_path / 'pictures'}"])
        )
    assert len(after.task.mean) == 3


def test_a_run_hands_on_its_scaling(tmp_path: Path) -> None:
    small = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=24", "tokenizer.vocab_size=60"]
    data = [*SCORES, f"data.path={tmp_path / 'rows.csv'}"]
    (tmp_path / "rows.csv").write_text("text,score\n" + "".join(f"word {i},{i / 10}\n" for i in range(60)))
    train(Recipe.load("classify", [*data, *small, "training.max_steps=1"]), tmp_path / "run", device="cpu")
    (tmp_path / "rows.csv").write_text("text,score\n" + "".join(f"word {i},{i * 7}\n" for i in range(60)))
    after, before = (
        resolved(Recipe.load("classify", [*data, f"model={tmp_path / 'run'}"])),
        Recipe.load(tmp_path / "run"),
    )
    assert (after.task.center, after.task.spread) == (before.task.center, before.task.spread) and after.task.spread < 3
