"""Runs at a time: their workers save and stop when the study is killed, and the study continues from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from small_study import written_study

from qkv.cli import main
from qkv.io.directories.layout import RunState
from qkv.lab.scaling.runs import steps_done

LONG = {"budgets": [2e9, 4e9], "sizes": ["8x1", "12x1", "16x1", "24x1"]}
SECONDS = 120.0  # to wait for what takes some seconds


def wait_for(happened: object, what: str) -> None:
    end = time.monotonic() + SECONDS
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end, f"{what} did not happen within {SECONDS:.0f} s"
        time.sleep(0.1)


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two
        return False


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.slow
def test_workers_stop_when_the_study_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    argv = ["scaling", str(written_study(tmp_path, **LONG)), "training.log_every=1", "--jobs", "2", "--out", str(out)]
    argv += ["--device", "cpu"]
    study = subprocess.Popen([sys.executable, "-m", "qkv", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = out / "2e09-8x1"
    wait_for(lambda: steps_done(first) > 20 or RunState.of(first) is RunState.FINISHED, "the first run")
    workers = psutil.Process(study.pid).children()
    assert len(workers) >= 2
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    wait_for(lambda: not any(map(runs, workers)), "the workers' end")
    assert sum(folder.is_dir() for folder in out.iterdir()) < 8  # the second worker may not have started a run
    assert main([*argv, "--resume", "--plan"]) == 0
    capsys.readouterr()
    assert RunState.of(first) in (RunState.STARTED, RunState.FINISHED)
