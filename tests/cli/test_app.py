"""The commands and their help pages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from qkv.cli import main

pytestmark = pytest.mark.usefixtures("elsewhere")


COMMANDS = (
    *("demo", "train", "eval", "generate", "translate", "score", "embed", "classify", "fill", "predict"),
    *("tokenizer", "list", "show", "cost", "doctor"),
)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_complete(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert "Usage: qkv" in printed
    for name in COMMANDS if not command else ():
        assert f" {name} " in printed
    for option in ("--num-beams", "--min-p", "--stop", "--scores", "--stream") if command == "generate" else ():
        assert option in printed


HELP = "import sys; from qkv.cli import main; main(['train', '--help']); print('torch' in sys.modules)"
SMALLEST = "import typer; app = typer.Typer(); app.command()(lambda: None); app(['--help'])"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    """Held against the smallest program with a help page, since both take longer on a busy or a slow machine."""
    ours, smallest = [], []
    for _ in range(5):
        began = seconds_of_children()
        done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60)
        between = seconds_of_children()
        subprocess.run([sys.executable, "-c", SMALLEST], capture_output=True, check=True, timeout=60)
        ours.append(between - began)
        smallest.append(seconds_of_children() - between)
    assert done.stdout.rstrip().endswith("False"), done.stdout[-200:]
    assert min(ours) < 2.5 * min(smallest)


def seconds_of_children() -> float:
    """Processor time, which depends least on what else the machine does."""
    times = os.times()
    return times.children_user + times.children_system


def test_it_runs_as_a_module_and_tells_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "qkv", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()[0]) == (0, "qkv")
