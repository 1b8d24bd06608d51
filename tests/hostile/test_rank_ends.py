"""The short version of `rank_ends.py`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_all_processes_end_after_a_rank_is_killed_or_stopped(tmp_path: Path) -> None:
    script = Path(__file__).with_name("rank_ends.py")
    command = [sys.executable, str(script), str(tmp_path), "--kills", "3", "--stops", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == [] and found["kills"] == 3 and found["stops"] == 3
