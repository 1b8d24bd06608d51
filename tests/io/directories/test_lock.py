from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from run_tiny import TINY

from qkv.io.directories.layout import RunState
from qkv.io.directories.lock import LOCK, OWNER, locked
from qkv.runs.inference.run import load
from qkv.runs.recipes.recipe import Recipe
from qkv.runs.train.train import train

HOLD = """
import sys, time
from pathlib import Path
from qkv.io.directories.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that has the lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_folder_is_made_and_gone_again_where_nothing_was_put_in(tmp_path: Path) -> None:
    with locked(tmp_path / "new/run"):
        assert sorted(path.name for path in (tmp_path / "new/run").iterdir()) == [LOCK, OWNER]
        assert RunState.of(tmp_path / "new/run") is RunState.FREE
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with locked(tmp_path / "old"):
        pass
    assert list((tmp_path / "old").iterdir()) == []


def test_a_live_run_is_not_touched_and_its_owner_is_named(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(Recipe.load("reverse", TINY), folder, device="cpu")
    process = holder(folder)
    try:
        (folder / "checkpoints/.tmp-step-00000009").mkdir()  # what the live run is writing
        (folder / ".tmp-model.safetensors").write_text("half")
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
        longer = Recipe.load("reverse", [*TINY, "training.max_steps=6"])
        for resume in (True, False):
            with pytest.raises(ValueError, match=rf"run is in use by process {process.pid} on \S+ since 20.*--out"):
                train(longer, folder, device="cpu", resume=resume, overwrite=not resume)
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
        assert load(folder, device="cpu").generate(["a b"])  # reading needs no lock
    finally:
        process.kill()
        process.wait()


def test_the_lock_of_a_dead_process_is_no_lock(tmp_path: Path) -> None:
    process = holder(tmp_path / "run")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert (tmp_path / "run" / OWNER).exists() and RunState.of(tmp_path / "run") is RunState.FREE
    train(Recipe.load("reverse", TINY), tmp_path / "run", device="cpu")
    assert RunState.of(tmp_path / "run") is RunState.FINISHED
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_a_live_run_that_has_delivered_nothing_says_who_trains_it(tmp_path: Path) -> None:
    process = holder(tmp_path / "run")
    try:
        (tmp_path / "run/recipe.yaml").write_text("name: x")
        with pytest.raises(
            ValueError, match=rf"is being trained by process {process.pid} .* has no model yet; wait for it"
        ):
            load(tmp_path / "run")
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ValueError, match="--resume"):
        load(tmp_path / "run")
