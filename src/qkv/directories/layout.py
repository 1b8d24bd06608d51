"""The files of the directories that qkv writes, what else may lie there if one is replaced, and the states of a run's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

from ..core import atomic, json_files
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

FOLDERS = (ADAPTER, CHECKPOINTS, "tensorboard", "wandb", "logs")
FILES = (
    *(EVALUATION, REPORT, "attention.json", "attention.html", "senses.json", "start.json", "machine.json"),
    *(SAMPLES, EXTREMES, WEIGHTS, *FOLDERS, BASE, METRICS, RUN_ID),
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


@dataclass(frozen=True)
class Contents:
    """What a directory of one kind may hold. A new one replaces it as a whole only if it holds nothing else.

    what:  the kind, with its article.
    files: patterns of the files, relative to the directory; `NAME/**` allows everything in a folder.
    needs: a file without which the directory is not of this kind; "" for none.
    """

    what: str
    files: tuple[str, ...]
    needs: str = ""

    def check(self, folder: Path, inside: Mapping[Path, Contents] | None = None) -> None:
        """Raise ValueError if a directory holds anything else. `inside`: the contents of some of its folders."""
        refusal = f"so {folder} is not replaced; move that away, or choose another directory"
        own = False
        for path in sorted(folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            nested = ((contents, home) for home, contents in (inside or {}).items() if path.is_relative_to(home))
            contents, home = next(nested, (self, folder))
            relative = path.relative_to(home)
            if _passing(relative):
                continue
            if not contents.allows(relative):
                raise ValueError(f"{path} is not part of {contents.what}, {refusal}")
            own = True
        if own and self.needs and not (folder / self.needs).is_file():
            raise ValueError(f"{folder} has no {self.needs}, which {self.what} has, {refusal}")

    def allows(self, path: PurePath) -> bool:
        """Whether a directory of this kind may hold the file."""
        for pattern in self.files:
            if pattern.endswith("/**"):
                if len(path.parts) > 1 and PurePath(path.parts[0]).match(pattern[:-3]):
                    return True
            elif len(path.parts) == len(PurePath(pattern).parts) and path.match(pattern):
                return True
        return False


def _passing(path: PurePath) -> bool:
    """Whether a file is a lock, or what a killed process left."""
    return path.name in (LOCK, OWNER) or _unfinished(Path(path.parts[0]))


def refuse(folder: Path) -> None:
    """The check of a command without `--overwrite`."""
    if State.of(folder) is not State.FREE:
        raise ValueError(f"{folder} already exists; choose another directory, or replace it with --overwrite")


MODULES = "modules.json"
EMBEDDING = (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json", "[0-9]*_*/config.json")
"""How sentence-transformers embeds texts."""


def check_own(path: Path) -> None:
    """Raise ValueError if a file that is to be replaced is part of a model or a run."""
    folder = path.resolve().parent
    for contents in (MODEL, RUN):
        if path.exists() and (folder / contents.needs).is_file() and contents.allows(PurePath(path.name)):
            raise ValueError(f"{path} is part of {contents.what} and is not replaced by itself; choose another place")


SETTINGS_OF_MODELS = (
    *(CONFIG, GENERATION, RECIPE, TOKENIZER, CHAT_TEMPLATE, "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "preprocessor_config.json", "source.spm", "target.spm", "vocab.json", *EMBEDDING),
)
MODEL = Contents(
    "a model's directory",
    (
        *SETTINGS_OF_MODELS,
        *(WEIGHTS, "model.safetensors.index.json", "model-*-of-*.safetensors", "[0-9]*_*/model.safetensors"),
    ),
    needs=CONFIG,
)
RESULTS = ("pruning.json", "pruning.html", "quantization.json", "quantization.html", "ablation.json")
RUN = Contents("a run", (*FILES, *RESULTS, *EMBEDDING, *(f"{name}/**" for name in FOLDERS)), needs=RECIPE)
SHRUNK = Contents("a pruned or quantized run", (*MODEL.files, *RESULTS, EVALUATION, REPORT), needs=CONFIG)


def tidy(folder: Path) -> None:
    """Remove files that killed processes left unfinished. Call it only with the directory locked."""
    for path in folder.iterdir():
        if _unfinished(path):
            atomic.remove(path)


def is_stub(folder: Path) -> bool:
    """Whether no training step is recorded: there is neither a checkpoint nor a training line in the log."""
    from ..training.logging.metrics_file import read_metrics

    log = folder / METRICS
    saved = any((folder / CHECKPOINTS).glob("step-*"))
    return not saved and not (log.is_file() and any(line.get("type") == "train" for line in read_metrics(log)))


def clear(folder: Path) -> None:
    """Remove a run's own files, the recipe (by which it is known) last; whatever else lies there stays."""
    for name in FILES:
        atomic.remove(folder / name)


def write_text(path: Path, text: str) -> None:
    atomic.write_file(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json_files.dumps(value, indent=2) + "\n")
