"""Read a run directory for its report: recipe, metrics history, evaluation, samples and machine."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from safetensors import SafetensorError, safe_open

from ...core import yamls
from ...cost.hardware import cores
from ...directories.layout import EVALUATION, METRICS, RECIPE, SAMPLES, WEIGHTS, read_json, read_text, write_json
from ...look.training_history import History
from ...training.logging.metrics_file import read_metrics

MACHINE = "machine.json"


@dataclass(frozen=True)
class Section:
    """A titled part of the page; `note` is the line under its title."""

    title: str
    body: Markup
    note: str = ""


@dataclass(frozen=True)
class Story:
    """What a run directory tells.

    recipe:     `recipe.yaml` as data.
    history:    the lines of `metrics.jsonl`.
    evaluation: `evaluation.json`: "metrics", "signatures", "split" and "examples" of the weights delivered.
    samples:    `samples.json`: dictionaries with "source", "output", perhaps "target" and "score".
    machine:    where the run was made: "processor", "cores", "gpu", "torch".
    """

    run_dir: Path
    recipe: Mapping[str, Any] = field(default_factory=dict)
    history: History = field(default_factory=History)
    evaluation: Mapping[str, Any] = field(default_factory=dict)
    samples: Sequence[Mapping[str, Any]] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, run_dir: Path, samples: Sequence[Mapping[str, Any]] | None = None) -> Story:
        recipe, metrics = run_dir / RECIPE, run_dir / METRICS
        return cls(
            run_dir,
            yamls.load(read_text(recipe), name=str(recipe)) or {} if recipe.exists() else {},
            History.of(read_metrics(metrics)) if metrics.exists() else History(),
            _read_object(run_dir / EVALUATION),
            _read_samples(run_dir / SAMPLES) if samples is None else list(samples),
            _machine(run_dir),
        )

    @property
    def name(self) -> str:
        return str(self.recipe.get("name") or self.run_dir.resolve().name)

    @property
    def task(self) -> str | None:
        """The kind of task that the run was taught; None where it only read texts or pairs."""
        return (self.recipe.get("task") or {}).get("kind")

    @cached_property
    def parameters(self) -> int | None:
        """Numbers in the weights' file, by its header; tensors that parts of the model share stand there once."""
        try:
            with safe_open(self.run_dir / WEIGHTS, framework="numpy") as weights:
                return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return None


def _read_object(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}, not an object")
    return found


def _read_samples(path: Path) -> list[dict[str, Any]]:
    found = read_json(path) if path.exists() else []
    if not isinstance(found, list) or not all(isinstance(s, dict) and isinstance(s.get("output"), str) for s in found):
        raise ValueError(f'{path} is not a list of samples, objects with "source", "output" and perhaps "target"')
    return found


def _machine(run_dir: Path) -> dict[str, str]:
    """Where the run was made: noted with its first report, which the run itself writes, and read from then on."""
    path = run_dir / MACHINE
    if not path.exists():
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        write_json(path, {"processor": _processor(), "cores": cores(), "gpu": gpu, "torch": torch.__version__})
    return {key: str(value) for key, value in _read_object(path).items() if value is not None}


def _processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
