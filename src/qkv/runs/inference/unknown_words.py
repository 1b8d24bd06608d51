"""Warn about what a model has never seen: words unknown to its tokenizer, language tags absent from its training data."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...core.spec import brief
from ...data.tokenizers.tokenizer import Tokenizer
from .loaded import LoadedModel

SHOWN = 8  # names in a sentence
_TAG = re.compile(r"<\w[\w-]{0,15}>|>>\w[\w-]{0,15}<<")


class Unseen(UserWarning):
    """A model is given something that it was not trained on, and its output may mean nothing."""


def warn(run: LoadedModel, texts: Sequence[str], rows: Sequence[Sequence[int]]) -> None:
    """Warn about unknown words and language tags in texts; a run warns about each only once.

    `rows` are the ids that the model reads for the texts: if none is the unknown token, nothing is tokenized again.
    """
    reader = run.reader
    if any(reader.unk_id in row for row in rows):
        count, unknown = reader.unknown(texts)
        _warn_once(run, {("word", word) for word in unknown}, partial(_words_message, reader, count, unknown))
    if tags := _wrong_tags(run, texts):
        _warn_once(run, {("tag", tag) for tag in tags}, partial(_tags_message, run, tags))


def warn_of_inputs(run: LoadedModel, texts: Sequence[str]) -> None:
    """Warn about the first unknown words in the inputs of `predict`. Names of files are not words."""
    task = run.trained_on
    if (task is not None and task.kind == "music") or any(what == "word" for what, _ in run.warned_about):
        return
    parts = [part for text in texts for part in text.split("\t")]  # tabs separate pairs
    words = [part for part in parts if not _is_file(part)]
    if not words:
        return
    count, unknown = run.reader.unknown(words)
    _warn_once(run, {("word", word) for word in unknown}, partial(_words_message, run.reader, count, unknown))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _warn_once(run: LoadedModel, unseen: set[tuple[str, str]], message: Callable[[], str]) -> None:
    if not unseen <= run.warned_about:
        run.warned_about.update(unseen)
        warnings.warn(message(), Unseen, stacklevel=5)


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str], where: str = "") -> str | None:
    """A sentence with the number of words that the tokenizer reads as its unknown token, and the first of them; None if all
    are known. `where` names the texts in it, such as `in the first 2 texts `."""
    count, unknown = tokenizer.unknown(texts)
    return _words_message(tokenizer, count, unknown, where) if unknown else None


def _words_message(tokenizer: Tokenizer, count: int, unknown: Sequence[str], where: str = "") -> str:
    units = "words" if tokenizer.kind in ("word", "wordpiece") else "pieces"
    verb = "is" if len(unknown) == 1 else "are"
    names = _listed([brief(word) for word in dict.fromkeys(unknown)])
    return (
        f"{len(unknown):,} of {count:,} {units} {where}{verb} unknown to the tokenizer and read as "
        f"{tokenizer.roles.get('unk')}: {names}"
    )


def unknown_tags(run: LoadedModel, texts: Sequence[str]) -> str | None:
    """A sentence with the language tags of texts that a translator was not trained with; None if all are known."""
    tags = _wrong_tags(run, texts)
    return _tags_message(run, tags) if tags else None


def _known_tags(run: LoadedModel) -> tuple[str, ...]:
    required = run.recipe.data.tags if run.recipe is not None else ()
    return required or tuple(name for name in run.words.sources.markers if _TAG.fullmatch(name))


def _wrong_tags(run: LoadedModel, texts: Sequence[str]) -> list[str]:
    """The unknown language tags in texts, each once; "" for texts without a tag if one is required."""
    if run.task != "translate":
        return []
    known = _known_tags(run)
    if not known and run.recipe is None:
        return []  # a model of the Hub may have learned its tags as ordinary words
    accepted = {*known} if run.recipe is not None and run.recipe.data.tags else {*known, ""}
    matches = [_TAG.match(text.lstrip()) for text in texts if text.strip()]
    tags = dict.fromkeys("" if match is None else match[0] for match in matches)
    return [tag for tag in tags if tag not in accepted]


def _tags_message(run: LoadedModel, tags: Sequence[str]) -> str:
    known, named = _known_tags(run), [tag for tag in tags if tag]
    unseen = [f"the language tag {', '.join(named[:SHOWN])}"] if named else []
    unseen += ["texts without a language tag"] if "" in tags else []
    remedy = (
        f"begin each text with one of {_listed(known)}"
        if known
        else "it was trained without language tags; leave them out"
    )
    return f"the model never saw {' or '.join(unseen)} in training, so its output means nothing there; {remedy}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
