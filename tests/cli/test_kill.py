"""kill −9 at random moments of runs and studies on the command line, each followed by --resume."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_tiny import TINY


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_weights(tmp_path: Path) -> None:
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


STUDIES = {
    "ablate": ["--vary", "decoder.position=rotary,alibi", "--seeds", "2"],
    "tune": ["--space", "training.optimizer.lr=1e-4..1e-2,log", "--trials", "4"],
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="asks /proc which processes are left")
@pytest.mark.parametrize("study", STUDIES)
def test_a_killed_study_of_two_jobs_continues_and_leaves_no_process(study: str, tmp_path: Path) -> None:
    if study == "tune":
        pytest.importorskip("optuna")
    settings = [*TINY, "training.max_steps=40", "training.eval_every=20", "training.save_every=5"]
    command = [sys.executable, "-m", "qkv", study, "reverse", *settings, *STUDIES[study], "--jobs", "2", "--out", "out"]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert first.stdout is not None
    while not (line := first.stdout.readline()).startswith("1/4 "):
        assert line, "it ended before a run was done"
    first.kill()
    first.wait()
    again = [*command, "--resume"]
    rest = subprocess.run(again, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=600).stdout
    assert "\n1/4 " not in rest and "\n4/4 " in rest, "runs that are done are kept, the others are trained"
    end = time.monotonic() + 60
    while left := processes_in(tmp_path):
        assert time.monotonic() < end, f"processes are left: {left}"
        time.sleep(0.5)


def processes_in(folder: Path) -> list[str]:
    """The processes that work in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder and (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def newest(folder: Path) -> str:
    pointer = folder / "checkpoints" / "last"
    return pointer.read_text() if pointer.exists() else ""
