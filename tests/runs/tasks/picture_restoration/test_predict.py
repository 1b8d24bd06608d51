"""Pictures of any size, predicted from files; trained runs beat the simple methods."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from qkv.data.batching.settings import Batching
from qkv.data.media.images import read
from qkv.data.synthetic.shapes import Shapes
from qkv.nn.layers.patches import Patches
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.tasks.picture_restoration.task import RestorationTask, Restore, Upscale
from qkv.runs.train.train import train

SEEN = Patches(image=(16, 16), patch=(4, 4), channels=3)
PIXELS = np.random.default_rng(0).integers(0, 256, (37, 21, 3), np.uint8)


class Brighter(torch.nn.Module):
    """Adds 0.1 in normalized units to every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.spec, self.head, self.device = self, self, torch.device("cpu")
        self.kind, self.normalized = "pixels", False

    def forward(self, ids: torch.Tensor, **inputs: Any) -> torch.Tensor:
        return torch.full((len(ids), 16, 48), 0.1)


def predicted(task: RestorationTask, path: Path) -> Any:
    task = task.replace({"mean": (0.5,) * 3, "std": (0.2,) * 3})
    trained = SimpleNamespace(model=Brighter(), tokenizer=None, batching=Batching(tokens=100))
    (found,) = task.resolve(Shapes(size=(16, 16)), None, SEEN).predict(trained, [str(path)])
    return found


@pytest.mark.parametrize("shape", [(37, 21), (16, 16), (5, 40), (1, 1)])
def test_a_picture_of_any_size_keeps_it_and_each_pixel_is_predicted(tmp_path: Path, shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 240, (*shape, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = predicted(Restore(noise=0.1), tmp_path / "a.png")
    np.testing.assert_array_equal(found.value, pixels + np.uint8(5))  # 0.1 · 0.2 · 255
    assert found.fields == {"size": list(shape), "change": 5.0}
    (path,) = found.write(tmp_path / "out")
    assert path.name == "a.restored.png"
    np.testing.assert_array_equal(np.asarray(Image.open(path)), found.value)


def test_a_small_picture_is_enlarged(tmp_path: Path) -> None:
    pixels = np.full((9, 7, 3), 100, np.uint8)
    Image.fromarray(pixels).save(tmp_path / "small.png")
    found = predicted(Upscale(factor=2), tmp_path / "small.png")
    assert found.value.shape == (18, 14, 3) and (found.value == 105).all()
    assert found.write(tmp_path / "out")[0].name == "small.upscaled.png"
    assert "differ from bicubic interpolation by 5.0 of 255 levels" in found.text


def test_a_file_without_a_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("none")
    with pytest.raises(ValueError, match=r"a\.png"):
        predicted(Restore(noise=0.1), tmp_path / "a.png")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at_least"), [("restore", 28.0), ("upscale", 24.0)])
def test_a_trained_run_beats_the_simple_methods_and_writes_pictures(name: str, at_least: float, tmp_path: Path) -> None:
    steps = ["training.max_steps=250", "training.eval_every=250", "training.save_every=250"]
    settings = [*steps, "evaluation.examples=50", "evaluation.test_examples=50"]
    done = train(Recipe.load(name, settings), tmp_path / "run", device="cpu")
    assert done.evaluation is not None
    psnr = done.evaluation.metrics["psnr"]
    assert psnr > at_least and psnr > 1 + max(one["metrics"]["psnr"] for one in done.evaluation.baselines)
    run = load(tmp_path / "run", device="cpu")
    assert run.recipe is not None and isinstance(run.recipe.task, RestorationTask)
    clean = next(run.recipe.data.examples("test"))["image"]
    given = run.recipe.task.corrupt(clean, np.random.default_rng(0))
    given = run.recipe.task.reduced(clean) if isinstance(run.recipe.task, Upscale) else given
    Image.fromarray(given.transpose(1, 2, 0)).save(tmp_path / "given.png")
    (path,) = run.predict([tmp_path / "given.png"])[0].write(tmp_path / "out")
    assert read(path).shape == clean.shape and np.abs(read(path).astype(float) - clean).mean() < 8
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8").count(">before<") >= 6
