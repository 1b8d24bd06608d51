"""Runs that were trained for a moment, and inputs for them."""

from __future__ import annotations

import io
import wave as wavefile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from qkv.runs.evaluate.evaluate import evaluate_run
from qkv.runs.inference.run import Run

SHORT = [
    *("training.max_steps=6", "training.eval_every=6", "training.save_every=6", "training.schedule.warmup=1"),
    *("model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.d_ff=16", "training.final=last"),
    *("evaluation.examples=2", "evaluation.test_examples=2", "evaluation.samples=20"),
]

Train = Callable[..., Run]


def examples(run: Run, count: int = 12) -> list[dict[str, Any]]:
    """Some of a run's test examples."""
    assert run.recipe is not None
    found = [one for one, _ in zip(run.recipe.data.examples("test"), range(count), strict=False)]
    assert found
    return found


def samples(run: Run, count: int = 12) -> list[dict[str, Any]]:
    """The samples of an evaluation of these; pictures in their order."""
    found = evaluate_run(run, "test", max_examples=count).samples
    assert found
    return found


def evaluated(run: Run) -> dict[str, dict[str, Any]]:
    """The same by their source."""
    return {sample["source"]: sample for sample in samples(run)}


TEXTS = ("data.train=300", "tokenizer.vocab_size=300", "batching.tokens=1024", "training.optimizer.lr=0.01")

PICTURES = ("data.train=24", "data.validation=4", "data.test=4")


def files(run: Run, folder: Path) -> list[Path]:
    """The test pictures of a run in files."""
    return [picture(one, folder) for one in examples(run)]


def picture(example: dict[str, Any], folder: Path) -> Path:
    path = folder / f"{len(list(folder.glob('*.png')))}.png"
    pixels = example["image"]
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(path)
    return path


def clip(example: dict[str, Any], folder: Path) -> Path:
    """An animated file that keeps every pixel."""
    path = folder / f"{len(list(folder.glob('*.webp')))}.webp"
    first, *others = [Image.fromarray(frame[0]).convert("RGB") for frame in example["video"]]
    first.save(path, save_all=True, append_images=others, lossless=True)
    return path


def values(content: bytes) -> Any:
    """The numbers in a PNG."""
    return np.asarray(Image.open(io.BytesIO(content)))


def wave(example: dict[str, Any], folder: Path) -> Path:
    """A WAV file of 16 bits."""
    path = folder / f"{len(list(folder.iterdir()))}.wav"
    with wavefile.open(str(path), "wb") as file:
        file.setparams((1, 2, example["rate"], 0, "NONE", ""))
        file.writeframes((np.clip(example["audio"], -1, 1) * 32767).astype("<i2").tobytes())
    return path
