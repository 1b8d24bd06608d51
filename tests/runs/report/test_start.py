"""The files that say when, how and where a training began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from qkv.runs.report.start import machine_of, note_start


def test_the_start_is_noted_with_its_machine(tmp_path: Path) -> None:
    note_start(tmp_path, "9 for training", torch.device("cpu"), "qkv train x")
    start = json.loads((tmp_path / "start.json").read_text())
    assert start.keys() == {"date", "device", "examples", "command"}
    assert (start["device"], start["examples"], start["command"]) == ("cpu", "9 for training", "qkv train x")
    assert machine_of(tmp_path)["torch"] == torch.__version__


def test_a_malformed_machine_is_named(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text("[]")
    with pytest.raises(ValueError, match=r"machine.json holds a list, not an object"):
        machine_of(tmp_path)
