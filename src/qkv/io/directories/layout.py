"""The files of the directories that qkv writes, what else may lie there if one is replaced, and the states of a run's."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePath
from typing import Any
from weakref import WeakKeyDictionary

from ...core import atomic, json_files
from ...core.json_files import read_json as read_json  # exported beside `write_json`
from ...core.json_files import read_text as read_text
from ...data.tokenizers.tokenizer_json import CHAT_TEMPLATE
from ...training.logging.wandb import RUN_ID
from .lock import LOCK, OWNER

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"  # transformers' settings of a tokenizer
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
ORIGIN = "origin.json"  # what the Hub directory said from which the model comes
PREPROCESSOR = "preprocessor_config.json"  # how pictures and sounds are read
PROCESSOR = "processor_config.json"  # the same, and how they stand in a text
CARD = "README.md"  # a model card
MODULES = "modules.json"  # the modules of a sentence-transformers model

FOLDERS = (ADAPTER, CHECKPOINTS, "tensorboard", "wandb", "logs")
# fmt: off
IN_FOLDERS = (
    f"{ADAPTER}/adapter_config.json", f"{ADAPTER}/adapter_model.safetensors", "logs/rank-*.log",
    *(
        f"{CHECKPOINTS}/{name}"
        for name in ("best", "last", "*step-*/*.safetensors", "*step-*/state.json", ".*", ".*/*")
    ),
    "tensorboard/*tfevents*", "tensorboard/*/*tfevents*", "wandb/**",
)
FILES = (
    EVALUATION, REPORT, "attention.json", "attention.html", "senses.json", "start.json", "machine.json",
    SAMPLES, EXTREMES, WEIGHTS, *FOLDERS, BASE, ORIGIN, PREPROCESSOR, METRICS, RUN_ID,
    GENERATION, TOKENIZER, CHAT_TEMPLATE, CONFIG, RECIPE,
)
# fmt: on
_UNFINISHED = re.compile(r"\.tmp-.*|\.(?P<name>.+)\.\d+")  # a process that was killed writing leaves these


class RunState(Enum):
    """The state of a run directory."""

    FREE = "free"  # nothing, or an empty folder
    STARTED = "started"  # an unfinished run
    FINISHED = "finished"
    FOREIGN = "foreign"  # something that is not a qkv run

    @classmethod
    def of(cls, folder: Path) -> RunState:
        if not folder.exists():
            return cls.FREE
        if not folder.is_dir():
            return cls.FOREIGN
        if all(path.name in (LOCK, OWNER) or _unfinished(path) or _are_logs(path) for path in folder.iterdir()):
            return cls.FREE  # empty, but for what killed processes were writing
        if not (folder / RECIPE).is_file():
            return cls.FOREIGN
        return cls.FINISHED if (folder / EVALUATION).is_file() and (folder / WEIGHTS).is_file() else cls.STARTED


def _are_logs(path: Path) -> bool:
    """Whether this is the folder of what ranks have printed, which they leave if they are killed before a run begins."""
    return path.name == "logs" and path.is_dir() and all(log.match("rank-*.log") for log in path.iterdir())


def _unfinished(path: Path) -> bool:
    match = _UNFINISHED.fullmatch(path.name)
    return match is not None and (match["name"] is None or match["name"] in FILES)


@dataclass(frozen=True)
class Contents:
    """The files that a directory of one kind may hold.

    A directory is replaced only if it holds no other files, judged by name and by content (`is_written`).

    what:  the kind, with its article.
    files: patterns of the files, relative to the directory; `NAME/**` allows everything in a folder.
    needs: a file without which the directory is not of this kind; "" for none.
    """

    what: str
    files: tuple[str, ...]
    needs: str = ""

    def check(self, folder: Path, inside: Mapping[Path, Contents] | None = None) -> bool:
        """Return whether a directory holds any files. Raises ValueError if it holds a file of another kind.

        inside: the contents of some of its folders, if they are of other kinds.
        """
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
            if not is_written(path, relative):
                raise ValueError(
                    f"{path} has the name of a file of {contents.what}, but holds something else, {refusal}"
                )
            own = True
        if own and self.needs and not (folder / self.needs).is_file():
            raise ValueError(f"{folder} has no {self.needs}, which {self.what} has, {refusal}")
        return own

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


# -- recognizing files by their content ----------------------------------------------------------------------------------

# fmt: off
_ANY: dict[str, tuple[str, ...]] = {
    CONFIG: ("model_type", "architectures"),
    GENERATION: (
        "max_new_tokens", "max_length", "num_beams", "do_sample", "bos_token_id", "eos_token_id", "pad_token_id",
        "decoder_start_token_id", "transformers_version", "_from_model_config",
    ),
    TOKENIZER_CONFIG: (
        "tokenizer_class",
        "model_max_length",
        "added_tokens_decoder",
        "clean_up_tokenization_spaces",
    ),
    "special_tokens_map.json": tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")),
    PREPROCESSOR: (
        "image_mean",
        "image_processor_type",
        "feature_extractor_type",
        "do_resize",
        "do_normalize",
    ),
    PROCESSOR: ("processor_class", "image_processor", "feature_extractor", "image_seq_len"),
    "config_sentence_transformers.json": ("__version__", "prompts", "similarity_fn_name", "default_prompt_name"),
    "sentence_bert_config.json": ("max_seq_length", "do_lower_case", "transformer_task", "modality_config"),
}
# fmt: on
"""Keys of JSON objects. A file has at least one of its keys."""
_ALL: dict[str, tuple[str, ...]] = {
    EVALUATION: ("split", "metrics"),
    EXTREMES: ("by", "best", "worst"),
    "senses.json": ("trained", "untrained"),
    "start.json": ("device",),
    "machine.json": ("processor",),
    TOKENIZER: ("model",),
    "model.safetensors.index.json": ("weight_map",),
    "pruning.json": ("source", "folder"),
    "quantization.json": ("source", "folder"),
    "adapter_config.json": ("peft_type",),
    "state.json": ("state",),
    "data.json": ("checksums",),
    ORIGIN: ("config", "generation"),
}
"""Keys of JSON objects. A file has all of its keys."""
_ENTRIES: dict[str, tuple[str, ...]] = {
    SAMPLES: ("source", "output"),
    "attention.json": ("layers",),
    MODULES: ("type",),
}
"""Keys of the objects in JSON lists. Each object has at least one of the keys."""
_IDS = ("vocab.json", "added_tokens.json")  # JSON objects of whole numbers
_MARKS: dict[str, re.Pattern[bytes]] = {
    RECIPE: re.compile(rb"^(data|model|training|task|batching):", re.M),
    METRICS: re.compile(rb'\A{("type": |"?t?y?p?e?"?\Z)'),  # a killed process leaves a part of a line
    CHAT_TEMPLATE: re.compile(rb"{[{%]"),
    RUN_ID: re.compile(rb"\A\S{1,200}\s*\Z"),
    "*.html": re.compile(rb"qkv</title>"),
    "*.spm": re.compile(rb"\A\n"),
    "spiece.model": re.compile(rb"\A\n"),
    "*.safetensors": re.compile(rb"\A.{8}{", re.S),
    "*.pt2": re.compile(rb"\APK"),
    "*.onnx": re.compile(rb"\A\x08"),
}
"""For files other than JSON: a pattern that matches how they begin."""
_BEGINNING = 1 << 16  # bytes


def is_written(path: Path, relative: PurePath) -> bool:
    """Return whether the content of a file is what qkv writes under its name.

    relative: the path of the file in its directory. Empty files, and names without a known content, pass.
    """
    if path.is_symlink() or not path.is_file() or not path.stat().st_size:
        return True
    if relative.name == CARD:
        return is_stamped(path)
    mark = next((mark for pattern, mark in _MARKS.items() if relative.match(pattern)), None)
    if mark is None:
        return relative.suffix != ".json" or _is_known_json(path, relative)
    with path.open("rb") as file:
        return mark.search(file.read(_BEGINNING)) is not None


_STAMP = re.compile(rb"\n<!-- written by qkv: ([0-9a-f]{64}) -->\n\Z")  # with the checksum of what stands above it


def stamped(card: str) -> str:
    """A model card with a last line by which it is known later that nobody has edited it."""
    return f"{card}\n<!-- written by qkv: {hashlib.sha256(card.encode()).hexdigest()} -->\n"


def is_stamped(path: Path) -> bool:
    """Whether a file is a model card as qkv wrote it. One that somebody edited is never replaced."""
    content = path.read_bytes()
    found = _STAMP.search(content)
    return found is not None and hashlib.sha256(content[: found.start()]).hexdigest().encode() == found[1]


def _is_known_json(path: Path, relative: PurePath) -> bool:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    name = relative.name
    if not value:
        return True
    if name in _ENTRIES:
        keys = _ENTRIES[name]
        return isinstance(value, list) and all(
            isinstance(one, dict) and not one.keys().isdisjoint(keys) for one in value
        )
    if not isinstance(value, dict):
        return False
    if name in _IDS:
        return all(type(number) is int for number in value.values())
    is_module = name == CONFIG and len(relative.parts) > 1  # of sentence-transformers, whose keys vary
    if name in _ANY and not is_module:
        return not value.keys().isdisjoint(_ANY[name])
    return value.keys() >= set(_ALL.get(name, ()))


# -- replacing a model ---------------------------------------------------------------------------------------------------

_written: WeakKeyDictionary[Any, dict[Path, tuple[int, int]]] = WeakKeyDictionary()
"""The directories that this process saved from each model, each with the `_identity` of what was written."""


def replaceable(contents: Contents, model: object, overwrite: bool) -> Callable[[Path], None]:
    """Return a function that checks whether a model may be saved to a directory.

    It raises ValueError if the directory holds other files than `contents`, or if it holds another model and
    `overwrite` is false.
    """

    def check(folder: Path) -> None:
        same = _written.get(model, {}).get(folder.resolve()) == _identity(contents, folder)
        if contents.check(folder) and not (overwrite or same):
            raise ValueError(
                f"{folder} is {contents.what} already; replace it with overwrite=True (--overwrite), or choose another "
                "directory"
            )

    return check


def note_written(contents: Contents, model: object, folder: Path) -> None:
    """Record that this process saved a model to a directory."""
    _written.setdefault(model, {})[folder.resolve()] = _identity(contents, folder)


def _identity(contents: Contents, folder: Path) -> tuple[int, int]:
    """Return the inode and time of the settings file, which change when the directory is written again; (0, 0) if there is
    no such file."""
    path = folder / contents.needs
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else (0, 0)


def refuse(folder: Path) -> None:
    """The check of a command without `--overwrite`."""
    if RunState.of(folder) is not RunState.FREE:
        raise ValueError(f"{folder} already exists; choose another directory, or replace it with --overwrite")


EMBEDDING = (MODULES, "config_sentence_transformers.json", "sentence_bert_config.json", "[0-9]*_*/config.json")
"""Files with which sentence-transformers describes how texts become vectors."""


def claim_output(path: Path, overwrite: bool, inputs: Iterable[Path] = ()) -> None:
    """`atomic.claim` the file that a command writes. Raises ValueError if it is an input, or part of a model or run."""
    if path.exists() and any(one.exists() and path.samefile(one) for one in inputs):
        raise ValueError(f"{path} is the input, which is never written over; choose another name")
    _check_own(path)
    atomic.claim(path, overwrite)


def claim_page(path: Path | None, overwrite: bool) -> None:
    """`claim_output` for a page or picture that a command writes only if its name is given.

    Raises ValueError if the folder of the page is missing, or if `overwrite` is given without a page.
    """
    if path is None:
        if overwrite:
            raise ValueError("--overwrite replaces the file of --out; give --out too")
        return
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for {path.name}; create it first")
    claim_output(path, overwrite)


def is_own_page(path: Path) -> bool:
    """Whether a path is a page that qkv wrote. A symbolic link is not."""
    return path.is_file() and not path.is_symlink() and is_written(path, PurePath(path.name))


def claim_folder(folder: Path, contents: Contents | None, inputs: Iterable[Path] = ()) -> None:
    """Make the directory into which a command writes files of `contents`, or check the one that is there. Such files never
    come among others. Contents of None only check: a command calls this first if it does not know its files yet.

    Raises ValueError if the directory is a run or a model, is or lies in a directory of the inputs, or holds one of them or
    any other file (hidden files don't count), or if this user may not write there.
    """
    atomic.check_folder(folder)
    advice, target = "choose an empty directory, or a new name", atomic.real(folder)
    if kind := next((kind for kind in (RUN, MODEL) if (folder / kind.needs).is_file()), None):
        raise ValueError(f"{folder} is {kind.what}, and no other files are written into it; {advice}")
    for one in inputs:
        home = atomic.real(one if one.is_dir() else one.parent)
        if one.exists() and target == home:
            raise ValueError(f"{folder} is the directory of the input, which stays as it is; {advice}")
        if one.is_dir() and target.is_relative_to(home):
            raise ValueError(f"{folder} lies in the directory of the input, which stays as it is; {advice}")
    if contents is None:
        return
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        name = PurePath(path.name)
        if not path.name.startswith(".") and not (contents.allows(name) and is_written(path, name)):
            raise ValueError(f"{path} is not one of {contents.what}, which are not mixed with others; {advice}")
    atomic.make_folder(folder)


def _check_own(path: Path) -> None:
    """Raise ValueError if a file that is to be replaced is part of a model or a run."""
    folder = atomic.real(path).parent
    for contents in (MODEL, RUN):
        if path.exists() and (folder / contents.needs).is_file() and contents.allows(PurePath(path.name)):
            raise ValueError(f"{path} is part of {contents.what} and is not replaced by itself; choose another place")


# fmt: off
SETTINGS_OF_MODELS = (
    CONFIG, GENERATION, ORIGIN, RECIPE, TOKENIZER, CHAT_TEMPLATE, TOKENIZER_CONFIG, "special_tokens_map.json",
    "added_tokens.json", PREPROCESSOR, PROCESSOR, "source.spm", "target.spm", "spiece.model", "vocab.json",
    *EMBEDDING,
)
MODEL = Contents(
    "a model's directory",
    (
        *SETTINGS_OF_MODELS,
        CARD, WEIGHTS, "model.safetensors.index.json", "model-*-of-*.safetensors", "[0-9]*_*/model.safetensors",
    ),
    needs=CONFIG,
)
# fmt: on
RESULTS = ("pruning.json", "pruning.html", "quantization.json", "quantization.html", "ablation.json")
RUN = Contents(
    "a run", (*(name for name in FILES if name not in FOLDERS), *RESULTS, *EMBEDDING, *IN_FOLDERS), needs=RECIPE
)
TOKENIZER_FILES = Contents(
    "a tokenizer's directory",
    (TOKENIZER, TOKENIZER_CONFIG, CHAT_TEMPLATE, "source.spm", "target.spm", "spiece.model", "vocab.json"),
    needs=TOKENIZER,
)
SHRUNK = Contents("a pruned or quantized run", (*MODEL.files, *RESULTS, EVALUATION, REPORT), needs=CONFIG)


def tidy(folder: Path) -> None:
    """Remove files that killed processes left unfinished. Call it only with the directory locked."""
    for path in folder.iterdir():
        if _unfinished(path):
            atomic.remove(path)


def is_stub(folder: Path) -> bool:
    """Whether no training step is recorded: there is neither a checkpoint nor a training line in the log."""
    from ...training.logging.metrics_file import read_metrics

    log = folder / METRICS
    saved = any((folder / CHECKPOINTS).glob("step-*"))
    return not saved and not (log.is_file() and any(line.get("type") == "train" for line in read_metrics(log)))


def clear(folder: Path) -> None:
    """Remove a run's own files, the recipe (by which it is known) last; whatever else lies there stays."""
    for name in FILES:
        atomic.remove(folder / name)


def write_text(path: Path, text: str) -> None:
    atomic.write_file(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    write_text(path, json_files.dumps(value, indent=2) + "\n")
