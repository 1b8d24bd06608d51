"""Sounds as inputs: one length, one rate, and what training hides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qkv.data.media.audio import encode
from qkv.data.readers.audio import Sounds
from qkv.data.source import Skipped
from qkv.data.task import RandomContext
from qkv.nn.layers.patches import Patches
from qkv.runs.tasks.sound_classification.task import Sound

IMAGE = Patches(image=(16, 20), patch=(4, 4), channels=1)


def tone(hertz: float, rate: int = 8000, seconds: float = 0.2) -> bytes:
    time = np.arange(int(seconds * rate)) / rate
    return encode(np.sin(2 * np.pi * hertz * time).astype(np.float32), rate)


def put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(6):
        put(tmp_path, f"train/low/{i}.wav", tone(200 + i))
        put(tmp_path, f"train/high/{i}.wav", tone(2000 + i))
    put(tmp_path, "test/low/a.wav", tone(210))
    put(tmp_path, "validation/high/b.wav", tone(2100))
    return tmp_path


def test_sounds_are_cut_or_stand_in_silence() -> None:
    task = Sound(image=(16, 20), n_fft=64, hop=40)
    long, short = (np.ones(n, np.float32) for n in (2000, 200))
    assert task.spectrogram(long, 8000).shape == (16, 20)
    frames = task.spectrogram(short, 8000)
    assert (frames[:, 0] == -10).all() and (frames[0, 9:11] > -3).all()


def test_without_a_rate_sounds_keep_their_own() -> None:
    task = Sound(image=(16, 20), n_fft=64, hop=40, mean=0, std=1, classes=("a", "b"))
    example = {"audio": np.ones(2000, np.float32), "rate": 8000, "label": "a"}
    item = task.item(example, None, RandomContext(np.random.default_rng(0), training=False))
    assert not isinstance(item, Skipped)
    np.testing.assert_array_equal(item.arrays["ids"][0], task.spectrogram(example["audio"], 8000))


def test_training_hides_and_shifts_by_chance_and_evaluation_does_not(folder: Path) -> None:
    source = Sounds(path=str(folder))
    task = Sound(n_fft=64, hop=40).resolve(source, None, IMAGE)
    assert task.classes == ("high", "low") and task.n_labels == 2
    example = next(source.examples("train", shuffle=False))

    def made(training: bool, seed: int) -> Any:
        item = task.item(example, None, RandomContext(np.random.default_rng(seed), training))
        assert not isinstance(item, Skipped)
        return item.arrays["ids"]

    assert not np.array_equal(made(True, 0), made(True, 1))
    np.testing.assert_array_equal(made(True, 0), made(True, 0))
    np.testing.assert_array_equal(made(False, 0), made(False, 1))
    with pytest.raises(ValueError, match="no class 'dog' in the training data"):
        task.item({**example, "label": "dog"}, None, RandomContext(np.random.default_rng(0), False))
