"""The short version of `kills.py`: some of the operations. It forks, so it is a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def figures(folder: Path, *options: str) -> dict[str, Any]:
    script = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder), *options], capture_output=True, text=True, timeout=280
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("program", "every"), [("saves", 61), pytest.param("runs", 61, marks=pytest.mark.slow)])
def test_killed_at_file_operations_and_resumed_a_run_ends_in_the_same(tmp_path: Path, program: str, every: int) -> None:
    found = figures(tmp_path, "--only", program, "--every", str(every), "--seed", "8")
    assert found["wrong"] == [] and found["kills"] >= 3


@pytest.mark.slow
def test_killed_at_random_moments_with_workers_and_resumed_a_run_ends_in_the_same(tmp_path: Path) -> None:
    found = figures(tmp_path, "--only", "moments", "--kills", "5")
    assert found["wrong"] == [] and found["kills"] >= 5
