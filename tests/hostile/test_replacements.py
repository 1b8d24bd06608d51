"""The short version of `replacements.py`: some of the programs, at some of their operations, in a process that may fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("replacements.py")
FILES = ("shards", "one-file", "qkv", "adapter", "safetensors", "gguf", "tokenizer")


@pytest.mark.parametrize(
    ("every", "programs"),
    [
        (29, ("hub",)),
        pytest.param(3, FILES, marks=pytest.mark.slow),
        pytest.param(5, ("quantize", "prune"), marks=pytest.mark.slow),
        pytest.param(23, ("train",), marks=pytest.mark.slow),
        pytest.param(7, ("onnx", "torch-export"), marks=pytest.mark.slow),
    ],
)
def test_stopped_at_a_file_operation_the_old_or_the_new_one_is_there(
    tmp_path: Path, every: int, programs: tuple[str, ...]
) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), "--every", str(every), "--only", *programs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["kills"] >= 2 * len(programs)
