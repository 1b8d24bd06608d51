"""The short version of `rank_kills.py`. It forks, so it is a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_ranks_killed_at_random_moments_and_resumed_end_in_the_same(tmp_path: Path) -> None:
    script = Path(__file__).with_name("rank_kills.py")
    command = [sys.executable, str(script), str(tmp_path), "--kills", "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == [] and found["kills"] >= 6
