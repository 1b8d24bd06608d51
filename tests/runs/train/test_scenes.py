"""The recipes for masks, boxes and captions, cut short: from data to a report with its pictures, and from a user's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.batch_preview import preview
from qkv.runs.train.train import train

SHORT = [
    *("training.max_steps=3", "training.eval_every=2", "training.save_every=2", "training.schedule.warmup=1"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "evaluation.examples=4"),
]
MADE = ["data.train=24", "data.validation=6", "data.test=6"]
WANTED = {
    "segment": ({"loss", "miou", "pixel_accuracy"}, "prediction"),
    "detect": ({"class", "box", "giou", "map", "map50"}, "<svg"),
    "caption": ({"loss", "exact"}, "data:image/png"),
}


@pytest.mark.parametrize("name", WANTED)
def test_a_recipe_from_made_data_to_its_report(name: str, tmp_path: Path) -> None:
    recipe = Recipe.load(name, [*SHORT, *MADE])
    assert preview(recipe).rows[0].lines()[0][0] == "ids"
    done = train(recipe, tmp_path / "run", device="cpu")
    metrics, drawn = WANTED[name]
    assert done.evaluation is not None and metrics <= done.evaluation.metrics.keys()
    assert drawn in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    run = load(tmp_path / "run", device="cpu")
    again = evaluate_run(run, "test")
    assert again.metrics == pytest.approx(done.evaluation.metrics, abs=1e-5)
    assert run.recipe is not None and run.recipe.task is not None and run.recipe.task.n_labels in (None, 4, 5)


SIZES = ["model.image=[48,48]", "model.patch=[8,8]"]
OTHERS = {
    "segment": ["model.preset=segmenter-tiny", *SIZES, "model.decoder_layers=1", "head=null"],
    "detect": ["model.proposals=tokens", "model.detections=3", "model.stem=[]"],
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_way_to_the_same_is_asked_alike(name: str, tmp_path: Path) -> None:
    done = train(Recipe.load(name, [*SHORT, *MADE, *OTHERS[name]]), tmp_path / "run", device="cpu")
    assert done.evaluation is not None and WANTED[name][0] <= done.evaluation.metrics.keys()
    Image.new("RGB", (70, 50), "gray").save(tmp_path / "7.png")
    (found,) = load(tmp_path / "run", device="cpu").predict([str(tmp_path / "7.png")])
    assert found.fields["size"] == [50, 70]


def test_training_continues_where_it_was_and_another_begins_with_its_weights(tmp_path: Path) -> None:
    first = Recipe.load("detect", [*SHORT, *MADE, "training.max_steps=2"])
    train(first, tmp_path / "run", device="cpu")
    other = Recipe.load("detect", [*SHORT[:4], *MADE, "evaluation.examples=4", f"model={tmp_path / 'run'}"])
    done = train(other, tmp_path / "tuned", device="cpu")
    assert done.evaluation is not None and "map" in done.evaluation.metrics


def test_segmentation_of_a_users_own_pictures_of_any_size(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2)):
        for i in range(count):
            for folder, value in (("image", 50), ("label", 0)):
                image = Image.new("L", (50 + 20 * i, 70), value)
                image.paste(200 if folder == "image" else 255, (10, 10, 40, 30 + i))
                (tmp_path / split / folder).mkdir(parents=True, exist_ok=True)
                image.save(tmp_path / split / folder / f"{i}.png")
    data = {"kind": "masks", "path": str(tmp_path / "train")}
    data |= {f"{split}_path": str(tmp_path / "test") for split in ("validation", "test")}
    recipe = Recipe.load("segment", [*SHORT, f"data={json.dumps(data)}", "task.crops=3", "model.channels=1"])
    done = train(recipe, tmp_path / "run", device="cpu")
    assert done.evaluation is not None and 0 <= done.evaluation.metrics["miou"] <= 1
    assert load(tmp_path / "run", device="cpu").recipe.task.values == (0, 255)  # type: ignore[union-attr]
    assert [sample["source"].endswith(".png") for sample in done.evaluation.samples] == [True, True]
