"""Settings of a recipe that have no effect beside a trained model, which keeps its tokenizer: one table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.locate import has_tokenizer, locate


def _has_template(directory: str) -> bool:
    """Whether the tokenizer in a directory has a chat template. A mistake in the directory is left to training."""
    try:
        return has_tokenizer(folder := locate(directory)) and bool(Tokenizer.load(folder).config.get("chat_template"))
    except (ValueError, OSError):
        return False


def _kept(directory: str, template: object) -> str:
    return "a trained model keeps its tokenizer"


def _own_template(directory: str, template: object) -> str | None:
    return f"the tokenizer of {directory} has a chat template, which is used" if _has_template(directory) else None


def _with_the_template(directory: str, template: object) -> str | None:
    """Special tokens are added with the recipe's chat template alone."""
    if not template:
        return (
            "a trained model keeps its tokenizer, to which special tokens are added with tokenizer.chat_template alone"
        )
    return _own_template(directory, template)


NO_EFFECT: Mapping[str, Callable[[str, object], str | None]] = {
    "tokenizer": _kept,
    "tokenizer.chat_template": _own_template,
    "tokenizer.special": _with_the_template,
}
"""Why a setting, or all below it, has no effect beside a trained model; None if it has one. The longest name counts."""


def warn(directory: str, settings: Iterable[tuple[str, Any]], tree: Mapping[str, Any]) -> None:
    """Warn of `settings`, with their values, that have no effect in the `tree` of a recipe with a trained model."""
    tokenizer = tree.get("tokenizer")
    template = tokenizer.get("chat_template") if isinstance(tokenizer, dict) else None
    reasons: dict[str, list[str]] = {}
    for key in (part for name, value in settings for part in _parts(name, value)):
        rule = next((NO_EFFECT[name] for name in _prefixes(key) if name in NO_EFFECT), None)
        if rule is not None and (why := rule(directory, template)) is not None:
            reasons.setdefault(why, []).append(key)
    for why, keys in reasons.items():
        warnings.warn(f"{' and '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect: {why}", stacklevel=5)


def _parts(key: str, value: Any) -> Iterator[str]:
    """The keys that a setting gives: for a tokenizer with a chat template or special tokens its parts, without the kind."""
    parts = value if key == "tokenizer" and isinstance(value, dict) else {}
    if {"chat_template", "special"} & parts.keys():
        yield from (f"{key}.{name}" for name in parts if name != "kind")
    else:
        yield key


def _prefixes(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]
