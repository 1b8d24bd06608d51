"""All registered tasks: an evaluation gives samples for the report, and prediction reads inputs without labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_recipes import RECIPES, SMALL, write_text

import qkv.runs.tasks
from qkv.core.metrics.base import Metric, model_outputs
from qkv.data.task import RandomContext, Task
from qkv.runs.inference.run import Run, load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks import FOLDERS
from qkv.runs.tasks.prediction_batches import prediction_batches
from qkv.runs.train.train import train
from qkv.training.objective import Objective

# The keys of an example that hold its labels, for tasks whose prediction reads examples.
LABELS = {
    "answer": ("answers", "starts"),
    "choice": ("answer",),
    "classify": ("label",),
    "detect": ("boxes", "names", "ignored"),
    "forecast": ("future",),
    "image-classify": ("label",),
    "regress": ("score",),
    "segment": ("mask",),
    "similarity": ("score",),
    "sound": ("label",),
    "tag": ("tags",),
    "video-classify": ("label",),
}
KINDS = sorted(kind for kind, task in Task.kinds.items() if task.__module__.startswith(f"{qkv.runs.tasks.__name__}."))
READS_FILES = {
    "caption",
    "music",
    "omni",
    "recognize",
    "recognize-ctc",
    "restore",
    "retrieve",
    "see",
    "upscale",
}  # predict from files alone, without examples

Trained = Callable[[str], tuple[Run, list[dict[str, Any]]]]


def test_every_kind_is_in_the_table_of_folders() -> None:
    qkv.runs.tasks.import_all()
    for at, role in enumerate((Task, Objective)):
        kinds = {kind: cls.__module__.split(".") for kind, cls in role.kinds.items()}
        found = {kind: path[3] for kind, path in kinds.items() if path[:3] == ["qkv", "runs", "tasks"]}
        assert found == {kind: folder for folder, both in FOLDERS.items() for kind in both[at]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run of each task after one step, and the samples of its evaluation."""
    folder = tmp_path_factory.mktemp("runs")
    write_text(folder / "text.txt")
    runs: dict[str, tuple[Run, list[dict[str, Any]]]] = {}

    def run(kind: str) -> tuple[Run, list[dict[str, Any]]]:
        if kind not in runs:
            name, settings = RECIPES[kind]
            settings = [setting.replace("TEXT", str(folder / "text.txt")) for setting in settings]
            done = train(Recipe.load(name, [*SMALL, *settings]), folder / kind, device="cpu")
            assert done.evaluation is not None
            runs[kind] = load(folder / kind, device="cpu"), done.evaluation.samples
        return runs[kind]

    return run


def task_of(run: Run) -> Task:
    assert run.recipe is not None and run.recipe.task is not None
    return run.recipe.task


def test_each_task_has_a_case() -> None:
    assert set(KINDS) == set(RECIPES)
    predicting = {kind for kind in KINDS if Task.kinds[kind]._predict is not None}
    assert predicting == set(LABELS) | READS_FILES


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_gives_samples(kind: str, trained: Trained) -> None:
    run, samples = trained(kind)
    task = task_of(run)
    assert task.kind == kind
    assert type(task.metric(run.tokenizer)).samples is not Metric.samples
    assert samples and all("source" in sample and ("output" in sample or "picture" in sample) for sample in samples)


@pytest.mark.parametrize("kind", LABELS)
def test_prediction_reads_inputs_alone(kind: str, trained: Trained) -> None:
    run, _ = trained(kind)
    assert run.recipe is not None
    task, source = task_of(run), run.recipe.data
    labelled = [one for one, _ in zip(source.examples("test"), range(3), strict=False)]
    assert any(name in one for one in labelled for name in LABELS[kind])
    bare = [{name: value for name, value in one.items() if name not in LABELS[kind]} for one in labelled]
    both = [
        task.inputs_of(examples, run.tokenizer, RandomContext(np.random.default_rng(0), training=False))
        for examples in (labelled, bare)
    ]
    for one, other in zip(*both, strict=True):
        assert isinstance(one, list) and isinstance(other, list) and len(one) == len(other) > 0
        for with_labels, without in zip(one, other, strict=True):
            assert without.labels is None and not without.targets
            assert with_labels.arrays.keys() == without.arrays.keys()
            assert all(np.array_equal(with_labels.arrays[name], without.arrays[name]) for name in without.arrays)
    numbers = set()
    for batch in prediction_batches(run, task, bare):
        numbers |= set(batch.numbers)
        assert batch.batch.labels is None and set(batch.batch.targets) <= {"rows"}
        with torch.inference_mode():
            model_outputs(run.model, batch.batch)
    assert numbers == set(range(len(bare)))


def test_a_caption_and_music_are_predicted_from_files_alone(trained: Trained, tmp_path: Path) -> None:
    captioner, _ = trained("caption")
    assert captioner.recipe is not None
    pixels = next(captioner.recipe.data.examples("test"))["image"]
    Image.fromarray(pixels.transpose(1, 2, 0)).save(tmp_path / "a.png")
    assert isinstance(captioner.predict([tmp_path / "a.png"])[0].value, str)
    with pytest.raises(ValueError, match="reads no pictures, sounds or videos in the places of tokens"):
        captioner.generate("what is there ?", images=tmp_path / "a.png")
    seer, _ = trained("see")
    said = seer.predict([(str(tmp_path / "a.png"), "what is there ?")])[0].value
    room = {"max_new_tokens": 128}
    assert seer.generate("what is there ?", images=tmp_path / "a.png", **room).strip().startswith(said[:20].strip())
    both = seer.generate(["what is there ?", "how many ?"], images=str(tmp_path / "a.png"), max_new_tokens=3)
    assert both[0] == seer.generate("what is there ?", images=[tmp_path / "a.png"], max_new_tokens=3)
    for images, question, message in (
        ([tmp_path / "a.png"] * 2, ["a"] * 3, "3 texts have 3 placeholders <image> and 2 images"),
        (tmp_path / "a.png", "<image> and <image>", "2 placeholders <image> and 1 image beside it"),
        (tmp_path / "none.png", "a", "none.png"),
    ):
        with pytest.raises(ValueError, match=message):
            seer.generate(question, images=images)  # type: ignore[call-overload]
    assert isinstance(trained("music")[0].predict([])[0].value, list)
