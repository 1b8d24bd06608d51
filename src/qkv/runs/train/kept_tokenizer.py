"""Keep tokenizers of computed texts in the cache folder, so the next training reads them instead of training again.

The key of a kept tokenizer is everything that it depends on: the settings of the source and of the tokenizer, the code of
`qkv.data`, and the versions of Python and the libraries. If it depends on more, it is not kept.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from ... import data
from ...data.files.cache import recall, remember
from ...data.source import Source
from ...data.tokenizers.from_file import FromFile
from ...data.tokenizers.training.spec import TokenizerSpec

if TYPE_CHECKING:
    from ...data.tokenizers.tokenizer import Tokenizer  # which imports PyTorch

_WHAT = "tokenizer.json"


def kept_or_trained(source: Source, spec: TokenizerSpec, train: Callable[[], Tokenizer]) -> Tokenizer:
    """Return the kept tokenizer of a source whose texts take time to compute, or train it and keep it."""
    if not _is_worth_keeping(source, spec):
        return train()
    from ...data.tokenizers.tokenizer import Tokenizer

    content = recall(_WHAT, *_inputs(source, spec))
    if content is not None:
        return Tokenizer.from_json(content.decode())
    trained = train()
    remember(trained.to_json().encode(), _WHAT, *_inputs(source, spec))
    return trained


def is_kept(source: Source, spec: TokenizerSpec) -> bool:
    """Whether `kept_or_trained` would not train."""
    return _is_worth_keeping(source, spec) and recall(_WHAT, *_inputs(source, spec)) is not None


def _is_worth_keeping(source: Source, spec: TokenizerSpec) -> bool:
    """Whether the texts take time to compute, and the tokenizer depends on nothing but `_inputs`: on no file, and on no code
    outside `qkv.data`."""
    ours = all(type(one).__module__.startswith(f"{data.__name__}.") for one in (source, spec))
    return source.takes_time and ours and not isinstance(spec, FromFile)


def _inputs(source: Source, spec: TokenizerSpec) -> tuple[str, ...]:
    """Everything that a kept tokenizer depends on."""
    settings = json.dumps([source.to_dict(), spec.to_dict()], sort_keys=True)
    return settings, _code(), platform.python_version(), *map(_version, ("tokenizers", *source.libraries))


def _version(library: str) -> str:
    try:
        return f"{library} {version(library)}"
    except PackageNotFoundError:
        return library


@cache
def _code() -> str:
    """The checksum of the code of `qkv.data`."""
    paths = sorted(Path(data.__path__[0]).rglob("*.py"))
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()
