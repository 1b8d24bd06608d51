"""Find a model's directory by its path or its name on the Hub, and tell what lies in it."""

from __future__ import annotations

from pathlib import Path

from ..core.atomic import recover
from ..hub import huggingface
from .layout import CONFIG, read_json
from .origin import MODEL_TYPE

TOKENIZERS = (
    *("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model"),
    *("source.spm", "*.tiktoken"),
)
RUNS = "runs"  # where `qkv train` puts runs: no owner on the Hub


def locate(path: Path | str, revision: str | None = None, allow_pickle: bool = False) -> Path:
    """The directory at `path`, else the Hub repository of that name, downloaded into the cache."""
    folder = Path(path)
    named = str(path)
    recover(folder)
    if folder.exists() or not huggingface.is_id(named) or folder.parts[0] == RUNS or Path(folder.parts[0]).exists():
        return folder
    return huggingface.download(named, revision, allow_pickle)


def is_hub(folder: Path) -> bool:
    """Whether a directory's configuration is the Hub's rather than ours."""
    if not (folder / CONFIG).is_file():
        return False
    data = read_json(folder / CONFIG)
    return not (isinstance(data, dict) and data.get("model_type") == MODEL_TYPE)


def has_tokenizer(folder: Path) -> bool:
    """Whether some library's tokenizer lies in a folder."""
    return any(path.is_file() for name in TOKENIZERS for path in folder.glob(name))
