"""`start.json` and `machine.json`: when, with which command and data, and on which machine a training began."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from ...io.directories.layout import read_json, write_json
from ...nn.cost.hardware import cores
from ...training.threads import sentence

START, MACHINE = "start.json", "machine.json"


def note_start(run_dir: Path, examples: str, device: torch.device, command: str | None) -> None:
    """Write both files at the beginning of a training. `examples` are the sizes of the splits, in words."""
    date = datetime.now().astimezone().isoformat(" ", "minutes")
    note = {"date": date, "device": str(device), "examples": examples, "command": command}
    write_json(run_dir / START, note)
    machine_of(run_dir)


def machine_of(run_dir: Path) -> dict[str, Any]:
    """The content of `machine.json`, which is written if it is missing. Raises ValueError if it is malformed."""
    path = run_dir / MACHINE
    if not path.exists():
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        write_json(path, {"processor": processor(), "cores": cores(), "gpu": gpu, "torch": torch.__version__})
    machine = read_json(path)
    if not isinstance(machine, dict):
        raise ValueError(f"{path} holds a {type(machine).__name__}, not an object")
    return machine


def note_threads(run_dir: Path, record: Mapping[str, Any]) -> None:
    """Add a choice of the number of threads, as `metrics.jsonl` records it, to `machine.json`."""
    if record.get("event") == "threads":
        chosen = {name: record[name] for name in ("step", "threads", "seconds", "others")}
        write_json(run_dir / MACHINE, machine_of(run_dir) | {"threads": {**chosen, "why": sentence(record)}})


def processor() -> str:
    """The processor's name if the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
