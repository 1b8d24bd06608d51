"""Two processes run the same command, which writes a new file. The first that is ready writes it, and the other says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MAIN = """
import sys
from qkv.core import atomic
from qkv.cli import main

real = atomic.sync_file

def waiting(path):
    atomic.sync_file = real
    print("READY", flush=True)
    sys.stdin.readline()
    real(path)

atomic.sync_file = waiting
sys.exit(main())
"""
FAST = {"new.bin": "vectors convert vectors.txt new.bin"}
SLOW = {
    "tokens/tokenizer.json": "tokenizer train in.txt --kind word --out tokens",
    "out.svg": "cost gpt2 --sweep tokens=128..256 --out out.svg",
    "page.html": "explain attention --out page.html",
    "look.html": "look small-english tall --out look.html",
    "out.csv": "score small-english in.csv --out out.csv",
    "out.npy": "embed small-english in.csv --out out.npy",
    "model.gguf": "convert small-english model.gguf --to gguf --dequantize",
    "new/model.safetensors": "convert small-english new/model.safetensors --to safetensors --dequantize",
}


def begun(folder: Path, command: str) -> subprocess.Popen[str]:
    """A process that has computed what it writes, and waits before it puts it in its place."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "300"}
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *command.split()], cwd=folder, text=True, env=environment, **pipes
    )


def ready(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return any(line == "READY\n" for line in process.stdout)


@pytest.mark.parametrize(
    ("name", "command"), [*FAST.items(), *(pytest.param(*one, marks=pytest.mark.slow) for one in SLOW.items())]
)
def test_of_two_commands_that_write_one_new_file_the_second_leaves_the_file_of_the_first(
    tmp_path: Path, name: str, command: str
) -> None:
    (tmp_path / "in.csv").write_text("text\nshe was tall\nhe went home\n")
    (tmp_path / "in.txt").write_text("the cat sat on the mat\n" * 20)
    (tmp_path / "vectors.txt").write_text("2 2\ncat 1 0\ndog 0 1\n")
    with begun(tmp_path, command) as one, begun(tmp_path, command) as two:
        assert ready(one) and ready(two)
        assert one.communicate("go\n")[1].count("in the meantime") == 0 and one.returncode == 0
        first = (tmp_path / name).stat().st_ino
        error = two.communicate("go\n")[1].splitlines()[-1]
    assert two.returncode == 2 and "another process has written" in error and "in the meantime" in error
    assert (tmp_path / name).stat().st_ino == first
    assert not list(tmp_path.rglob(".tmp-*"))
