"""A long document through a windowed decoder, in a separate process that says how much memory it held."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "docs" / "long_document.py"

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs the kernel's account of a process"
)


def took(*tokens: int) -> dict[str, float]:
    done = subprocess.run([sys.executable, SCRIPT, *map(str, tokens)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_documents_script_runs_and_the_cache_is_the_window():
    """2 layers · 256 tokens · (keys and values) · 128 numbers · 4 bytes."""
    assert took(1000)["cache, MiB"] == 0.5


@pytest.mark.slow
def test_a_hundred_thousand_tokens_train_and_generate_in_four_gigabytes():
    found = took()
    assert found["peak, MiB"] * 2**20 < 4e9
    assert found["cache, MiB"] == 0.5
