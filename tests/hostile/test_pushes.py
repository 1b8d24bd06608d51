"""The short version of `pushes.py`, in a process that may fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_stopped_while_it_pushes_an_adapter_the_repository_has_the_old_or_the_new_model(tmp_path: Path) -> None:
    script = Path(__file__).with_name("pushes.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "--every", "9"], capture_output=True, text=True, timeout=280
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["kills"] >= 4
