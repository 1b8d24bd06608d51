"""The short version of `replacements.py`: some of the programs, at some of their operations, in a process that may fork."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("replacements.py")
FILES = ("shards", "one-file", "qkv", "adapter", "safetensors", "gguf", "tokenizer")


SAVES = ("save-model", "save-folded", "save-merged", "save-lora")
COMMANDS = (
    "convert-hub",
    "convert-qkv",
    "convert-gguf",
    "convert-lora",
    "convert-merged",
    "tokenizer-train",
    "tokenizer-convert",
    "score",
)
RESULTS = (*(f"predict-{kind}" for kind in ("csv", "jsonl", "parquet")), "look-svg", "look-html", "eval", "explain")
OTHERS = ("cache", "report", "cost-sweep", "transcribe", "list")
IS_ROOT = sys.platform == "linux" and os.geteuid() == 0
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("how", "programs"),
    [
        (("--every", "29"), ("hub",)),
        pytest.param(("--every", "3"), FILES, marks=slow),
        pytest.param(("--every", "9"), SAVES, marks=slow),
        pytest.param(("--every", "11"), COMMANDS, marks=slow),
        pytest.param(("--every", "11"), RESULTS, marks=slow),
        pytest.param(("--every", "4"), OTHERS, marks=slow),
        pytest.param(("--every", "7"), ("cost-simulate", "tour"), marks=slow),
        pytest.param(("--every", "5"), ("quantize", "prune"), marks=slow),
        pytest.param(("--every", "23"), ("train",), marks=slow),
        *(pytest.param(("--every", "10"), (study,), marks=slow) for study in ("ablate", "tune", "scaling", "compare")),
        pytest.param(("--every", "7"), ("onnx", "torch-export"), marks=slow),
        pytest.param(("--moments", "4"), ("convert-hub", "convert-shards", "command-prune"), marks=slow),
        *(
            pytest.param(
                ("--disks", "6"),
                programs,
                marks=[slow, pytest.mark.skipif(not IS_ROOT, reason="mounts small disks, which takes root on Linux")],
            )
            for programs in (
                ("convert-hub", "convert-gguf", "save-lora", "adapter", "tokenizer-convert"),
                ("quantize", "prune", "convert-merged", "tokenizer-train", "predict-csv", "cache", "report", "tour"),
                ("train",),
            )
        ),
    ],
)
def test_stopped_while_it_writes_the_old_or_the_new_one_is_there(
    tmp_path: Path, how: tuple[str, ...], programs: tuple[str, ...]
) -> None:
    command = [sys.executable, str(SCRIPT), str(tmp_path), *how, "--only", *programs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == [] and found["kills"] >= len(programs) * (2 if "--every" in how else 1)
