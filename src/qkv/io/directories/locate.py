"""Find a model's directory by its path, by its name on the Hub or in the package, and tell what lies in it."""

from __future__ import annotations

import warnings
from pathlib import Path

from ...core import several
from ...core.atomic import recover
from ...core.spec import brief
from ..hub import huggingface
from .layout import CONFIG, read_json
from .origin import MODEL_TYPE

# fmt: off
TOKENIZERS = (
    "tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model",
    "source.spm", "*.tiktoken",
)
# fmt: on
RUNS = "runs"  # where `qkv train` puts runs: no owner on the Hub
ADAPTER_CONFIG = "adapter_config.json"  # PEFT's
SHIPPED = Path(__file__).with_name("shipped")
SMALL_ENGLISH = "small-english"  # the model that comes with the package


def locate(path: Path | str, revision: str | None = None, allow_pickle: bool = False) -> Path:
    """The directory at `path`, else the model of that name in the package, else the Hub's repository `owner/name` or
    `owner/name@revision`, downloaded into the cache.

    Warns if a directory has the name of a repository in the cache, or an adapter beside its model. Raises ValueError for a
    name that can't be a path, for a revision of a directory, and for a directory with an adapter alone.
    """
    folder = several.path(path, "a run")
    named = str(path)
    try:
        exists = folder.exists()
    except (OSError, ValueError) as error:  # too long for a name, or with a NUL
        raise ValueError(
            f"there is no run directory {brief(named)}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not exists:
        recover(folder)
        exists = folder.exists()
    if named == SMALL_ENGLISH and not exists:
        return SHIPPED / named
    if exists:
        _check_directory(named, revision)
        return _no_adapter(folder)
    on_hub = huggingface.named(named, revision)
    if on_hub is None or folder.parts[0] == RUNS or Path(folder.parts[0]).exists():
        return folder
    return _no_adapter(huggingface.download(on_hub, allow_pickle))


def _no_adapter(folder: Path) -> Path:
    """Return the folder. Warns of an adapter beside a model, which transformers would apply if it finds peft. Raises
    ValueError if the folder holds only an adapter; the message says how to load it."""
    if not (folder / ADAPTER_CONFIG).is_file():
        return folder
    if (folder / CONFIG).is_file():
        warnings.warn(
            f"{folder} holds an adapter beside the model, and only the model is read; in Python, "
            f"`qkv.load_adapter(run.model, {brief(str(folder))})` puts the adapter into it",
            stacklevel=4,
        )
        return folder
    config = read_json(folder / ADAPTER_CONFIG)
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    of = brief(base) if isinstance(base, str) and base else "BASE"
    raise ValueError(
        f"{folder} holds an adapter without its base model; load both in Python, "
        f"`run = qkv.load({of}); qkv.load_adapter(run.model, {brief(str(folder))})`, and write the model with it by "
        "`run.save(PATH, 'hub')`"
    )


def _check_directory(named: str, revision: str | None) -> None:
    """Raise ValueError for a revision of a directory; warn if its name is also one in the Hub's cache."""
    if revision is not None:
        raise ValueError(
            f"{brief(named)} is a directory on this machine, and only repositories of the Hub have revisions; leave "
            f"{brief(revision)} out, or name the repository from another working directory"
        )
    on_hub = huggingface.named(named)
    if on_hub is not None and huggingface.in_cache(on_hub):
        warnings.warn(
            f"{named} is the directory on this machine; the repository of that name on the Hub is not used",
            stacklevel=4,
        )


def not_there(folder: Path) -> ValueError:
    """The error for a model that is not there."""
    return ValueError(
        f"there is no run directory {folder}; train one by `qkv train`, name a model of the Hub as owner/name, such as "
        f"openai-community/gpt2, or take {SMALL_ENGLISH}, which comes with qkv"
    )


def name_of(folder: Path) -> str:
    """The name by which `locate` finds a directory: its path, or of the model in the package its name."""
    return folder.name if folder.parent == SHIPPED else str(folder)


def is_hub(folder: Path) -> bool:
    """Whether a directory's configuration is the Hub's rather than ours."""
    if not (folder / CONFIG).is_file():
        return False
    data = read_json(folder / CONFIG)
    return not (isinstance(data, dict) and data.get("model_type") == MODEL_TYPE)


def has_tokenizer(folder: Path) -> bool:
    """Whether some library's tokenizer lies in a folder."""
    return any(path.is_file() for name in TOKENIZERS for path in folder.glob(name))
