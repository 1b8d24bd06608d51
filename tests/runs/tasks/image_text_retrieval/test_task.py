"""The task `retrieve`: what it reads, what it refuses, and the use of a run."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_recipes import FEW, NARROW_TEXT, SMALL

from qkv.data.source import Skipped
from qkv.data.task import RandomContext
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.image_text_retrieval.task import Retrieve
from qkv.runs.tasks.image_text_retrieval.towers import candidates
from qkv.runs.train.tokenizer import make
from qkv.runs.train.train import train

PAIR = [*SMALL, *FEW, *NARROW_TEXT]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("clip") / "run"
    train(Recipe.load("clip", PAIR), folder, device="cpu")
    return load(folder, device="cpu")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for i in range(3):
        Image.fromarray(random.integers(0, 255, (20 + i, 40, 3), np.uint8)).save(folder / f"{i}.png")
    return sorted(str(path) for path in folder.iterdir())


def test_pictures_and_texts_are_embedded_into_one_space(run: Run, pictures: list[str]) -> None:
    images, texts = run.embed(images=pictures), run.embed(["a red circle", "a cross"])
    assert [tuple(one.shape) for one in [*images, *texts]] == [(8,)] * 5
    torch.testing.assert_close(torch.stack([*images, *texts]).norm(dim=-1), torch.ones(5))
    torch.testing.assert_close(run.embed(images=pictures[1]), images[1])
    (one,) = run.predict([(pictures[0], "a cross")])
    assert one.value == pytest.approx(float(images[0] @ texts[1]), abs=1e-5)
    with pytest.raises(ValueError, match="give texts or images, and call embed twice"):
        run.embed("a", images=pictures)  # type: ignore[call-overload]


def test_classes_are_the_softmax_of_scores_with_the_mean_of_their_prompts(run: Run, pictures: list[str]) -> None:
    templates = ("a small {}", "a large {}")
    found = run.classify_files(pictures, "red circle,blue cross", templates)
    prompts = [[run.embed(one.format(name)) for one in templates] for name in ("red circle", "blue cross")]
    means = torch.nn.functional.normalize(torch.stack([sum(both) / 2 for both in prompts]), dim=-1)
    scale = run.model.logit_scale.exp().item()
    for path, one in zip(pictures, found, strict=True):
        wanted = (scale * run.embed(images=path) @ means.T).softmax(-1)
        assert one.probabilities["red circle"] == pytest.approx(float(wanted[0]), abs=1e-5)


def test_the_nearest_are_found_in_a_folder_and_a_file(run: Run, pictures: list[str], tmp_path: Path) -> None:
    (one,) = run.predict(["a red circle"], among=str(Path(pictures[0]).parent), top=2)
    cosines = [float(run.embed("a red circle") @ image) for image in run.embed(images=pictures)]
    assert [value for _, value in one.value] == pytest.approx(sorted(cosines, reverse=True)[:2], abs=1e-5)
    lines = tmp_path / "lines.txt"
    lines.write_text("a cross\n\na circle\n", encoding="utf-8")
    (two,) = run.predict([pictures[0]], among=lines)
    assert {candidate for candidate, _ in two.value} == {"a cross", "a circle"}


@pytest.mark.parametrize(
    ("classes", "templates", "message"),
    [
        ("cat", (), "there is only 'cat'; name two at least"),
        ("cat,cat", (), "the class 'cat' is named twice"),
        ("cat,,dog", (), "class 2 of 3 has no name"),
        ("cat,dog", "a photo", "the template needs {} once"),
        ("", (), "compares pictures with names of classes; name them: --classes cat,dog"),
    ],
)
def test_bad_classes_are_told_in_one_sentence(run, pictures, classes, templates, message) -> None:
    with pytest.raises(ValueError, match=message):
        run.classify_files(pictures[0], classes, templates)


def test_bad_pictures_and_texts_are_told(run: Run, tmp_path: Path) -> None:
    Image.new("RGB", (5000, 1)).save(tmp_path / "narrow.png")
    assert run.embed(images=tmp_path / "narrow.png").shape == (8,)  # small enough when it is enlarged
    (tmp_path / "bad.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.png' can't be read as a picture"):
        run.embed(images=tmp_path / "bad.png")
    with pytest.warns(UserWarning, match="1 text is longer than the 32 tokens that the model reads, and cut there"):
        run.embed("a red circle " * 20)
    with pytest.raises(ValueError, match="text 1 is empty"):
        run.embed(" ")
    with pytest.raises(ValueError, match="holds no pictures and no lines"):
        (tmp_path / "empty").mkdir()
        run.predict(["a cross"], among=str(tmp_path / "empty"))


def test_candidates_in_a_file_are_texts_and_pictures_that_are_there(run: Run, tmp_path: Path) -> None:
    """Names count in the folder of the file too; what is missing is told with its line."""
    Image.new("RGB", (32, 32)).save(tmp_path / "here.png")
    listed = tmp_path / "listed.txt"
    listed.write_text("\ufeffa red circle\nhere.png\n\na cat.png as a text\n", encoding="utf-8")
    assert candidates(listed) == ["a red circle", str(tmp_path / "here.png"), "a cat.png as a text"]
    listed.write_text("a red circle\n\ngone.png\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"listed\.txt, line 3: there is no picture 'gone\.png'"):
        run.predict(["a cross"], among=str(listed))
    listed.write_bytes("ein Kreis\nein grünes Kreuz".encode("latin-1"))
    with pytest.raises(ValueError, match=r"listed\.txt' is not UTF-8: the byte 17 begins no character"):
        run.predict(["a cross"], among=str(listed))
    with pytest.raises(ValueError, match=r"there is no picture 'nowhere\.png'"):
        run.predict(["nowhere.png"], among=["a cross", "a circle"])


def test_a_picture_that_would_fill_memory_is_refused_and_skipped(run: Run, tmp_path: Path) -> None:
    task = run.trained_on
    assert isinstance(task, Retrieve)
    large = task.replace({"image": (224, 224)})
    Image.new("RGB", (5000, 1)).save(tmp_path / "narrow.png")
    with pytest.raises(ValueError, match="1 × 5,000 pixels, which is too long and narrow to be enlarged to 224 × 224"):
        large.picture(str(tmp_path / "narrow.png"))
    example = {"image": tmp_path / "narrow.png", "answer": "a line", "where": "line 1"}
    (item,) = large.items([example], run.tokenizer, RandomContext(np.random.default_rng(0), False))
    assert isinstance(item, Skipped) and "too long and narrow" in item


def test_labels_become_texts_by_templates() -> None:
    task = Retrieve(templates=("a photo of a {}", "a {}"))
    assert task.text_of({"label": "cat"}) == "a photo of a cat"
    assert list(task.texts({"label": "cat"})) == ["a photo of a cat", "a cat"]
    with pytest.raises(ValueError, match=r"has a label and no text; set task.templates"):
        Retrieve().text_of({"label": "cat", "where": "line 3"})
    with pytest.raises(ValueError, match="has no text beside its picture"):
        Retrieve().text_of({"image": 1})
    with pytest.raises(ValueError, match=r"task.templates needs \{\} once"):
        Retrieve(templates=("a cat",))


def test_models_and_tasks_that_dont_fit_are_told() -> None:
    for settings, message in (
        (["model=captioner"], "the task retrieve needs a dual-encoder"),
        (
            ["task=caption", "objective=labels"],
            "the task caption needs a Transformer, and this model is a dual-encoder",
        ),
        (["task.longest=100"], "task.longest is 100, and the model reads texts of 32 tokens at most"),
    ):
        with pytest.raises(ValueError, match=message):
            recipe = Recipe.load("clip", [*FEW, *settings])
            recipe.resolve_data(make(recipe, False))


def test_texts_that_are_all_alike_are_refused(tmp_path: Path) -> None:
    rows = []
    for i in range(3):
        Image.new("RGB", (8, 8), (i, i, i)).save(tmp_path / f"{i}.png")
        rows.append(f'{{"image": "{i}.png", "answer": "a picture"}}')
    (tmp_path / "train.jsonl").write_text("\n".join(rows * 20), encoding="utf-8")
    with warnings.catch_warnings(), pytest.raises(ValueError, match="nothing to tell apart; give each picture a text"):
        warnings.simplefilter("ignore")
        recipe = Recipe.load("clip", [f"data={{kind: captions, path: {tmp_path}/train.jsonl}}"])
        recipe.resolve_data(make(recipe, False))
