"""The files of a run directory, the states it can be in, and how its files are written: beside, then renamed."""

from __future__ import annotations

import re
import shutil
from enum import Enum
from pathlib import Path
from typing import Any

from ..core import atomic, plain_json
from ..core.json_files import read_json, read_text  # noqa: F401  # used beside the functions that write them
from ..tokenizers.tokenizer_json import CHAT_TEMPLATE
from ..training.logging.wandb import RUN_ID
from .lock import LOCK, OWNER

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
GENERATION = "generation_config.json"
RECIPE = "recipe.yaml"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
SAMPLES = "samples.json"
EXTREMES = "extremes.json"  # the best and the worst examples
EVALUATION = "evaluation.json"  # a directory without it holds an unfinished run
REPORT = "report.html"
ADAPTER = "adapter"
MAX_SHARD_SIZE = "5GB"  # default size limit of a weight file in the Hub's format
BASE = "base.json"  # what an adapter was trained over

FILES = (
    *(
        EVALUATION,
        REPORT,
        "attention.json",
        "attention.html",
        "senses.json",
        "start.json",
        "machine.json",
        SAMPLES,
        EXTREMES,
        WEIGHTS,
    ),
    *(ADAPTER, BASE, CHECKPOINTS, METRICS, "tensorboard", "wandb", RUN_ID),
    *(GENERATION, TOKENIZER, CHAT_TEMPLATE, CONFIG, RECIPE),
)
_UNFINISHED = re.compile(r"\.tmp-.*|\.(?P<name>.+)\.\d+")  # a process that was killed writing leaves these


class State(Enum):
    """The state of a run directory."""

    FREE = "free"  # nothing, or an empty folder
    STARTED = "started"  # an unfinished run
    FINISHED = "finished"
    FOREIGN = "foreign"  # something that is not a qkv run

    @classmethod
    def of(cls, folder: Path) -> State:
        if not folder.exists():
            return cls.FREE
        if folder.is_dir() and all(path.name in (LOCK, OWNER) or _unfinished(path) for path in folder.iterdir()):
            return cls.FREE  # empty, but for what a killed process was writing
        if not folder.is_dir() or not (folder / RECIPE).is_file():
            return cls.FOREIGN
        return cls.FINISHED if (folder / EVALUATION).is_file() and (folder / WEIGHTS).is_file() else cls.STARTED


def _unfinished(path: Path) -> bool:
    match = _UNFINISHED.fullmatch(path.name)
    return match is not None and (match["name"] is None or match["name"] in FILES)


def tidy(folder: Path) -> None:
    """Remove files that killed processes left unfinished. Call it only with the directory locked."""
    for path in folder.iterdir():
        if _unfinished(path):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def is_stub(folder: Path) -> bool:
    """Whether no training step is recorded: there is neither a checkpoint nor a training line in the log."""
    from ..training.logging.metrics_file import read_metrics

    log = folder / METRICS
    saved = any((folder / CHECKPOINTS).glob("step-*"))
    return not saved and not (log.is_file() and any(line.get("type") == "train" for line in read_metrics(log)))


def clear(folder: Path) -> None:
    """Remove a run's own files, the recipe (by which it is known) last; whatever else lies there stays."""
    for name in FILES:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    atomic.write_file(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, plain_json.dumps(value, indent=2) + "\n")
