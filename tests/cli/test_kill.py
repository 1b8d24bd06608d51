"""kill −9 at random moments of a run on the command line, each followed by --resume."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_tiny import TINY


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    settings = [*TINY, "training.max_steps=300", "training.eval_every=20", "training.save_every=5"]
    command = [sys.executable, "-m", "qkv", "train", "reverse", *settings, "--resume", "--out"]
    subprocess.run([*command, "whole"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    chance = random.Random(0)
    for _ in range(3):
        before = newest(tmp_path / "killed")
        process = subprocess.Popen([*command, "killed"], cwd=tmp_path, stdout=subprocess.DEVNULL)
        while process.poll() is None and newest(tmp_path / "killed") == before:
            time.sleep(0.01)
        time.sleep(chance.random())
        process.kill()
        process.wait()
    subprocess.run([*command, "killed"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    whole, killed = (tmp_path / name / "model.safetensors" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()


def newest(folder: Path) -> str:
    pointer = folder / "checkpoints" / "last"
    return pointer.read_text() if pointer.exists() else ""
