"""Find what a model has never seen in a text: words unknown to its tokenizer, language tags absent from training."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Iterable, Sequence

from ..tokenizers.tokenizer import Tokenizer
from .loaded import LoadedModel

SHOWN = 8  # names in a sentence
_TAG = re.compile(r"<\w[\w-]{0,15}>|>>\w[\w-]{0,15}<<")


class Unseen(UserWarning):
    """A model is asked about something that it was not trained on, and answers all the same."""


def warn(run: LoadedModel, texts: Iterable[str]) -> None:
    """Warn, in a sentence each, of unknown words and of unknown language tags in what a run is to read."""
    if run.tokenizer is None:
        return
    texts = list(texts)
    for said in (unknown_words(run.text_model.reader, texts), unknown_tags(run, texts)):
        if said is not None:
            warnings.warn(said, Unseen, stacklevel=4)


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str], whose: str = "") -> str | None:
    """How many words of texts the tokenizer reads as its unknown token, and which; None where there is none."""
    words, unknown = tokenizer.unknown(texts)
    if not unknown:
        return None
    what = "words" if tokenizer.kind in ("word", "wordpiece") else "pieces"
    named = ", ".join(map(repr, itertools.islice(dict.fromkeys(unknown), SHOWN)))
    more = len(dict.fromkeys(unknown)) - SHOWN
    return (
        f"{len(unknown):,} of {words:,} {what} {whose}are unknown to the tokenizer and read as "
        f"{tokenizer.roles['unk']}: {named}{f' and {more:,} more' if more > 0 else ''}"
    )


def unknown_tags(run: LoadedModel, texts: Sequence[str]) -> str | None:
    """Which language tags of texts a translator has not been trained with, and which it has; None where all is well."""
    if run.task != "translate" or run.tokenizer is None:
        return None
    required = run.recipe.data.tags if run.recipe is not None else ()
    known = required or tuple(name for name in run.tokenizer.sources.markers if _TAG.fullmatch(name))
    if not known and run.recipe is None:
        return None  # a model of the Hub may have learned its tags as ordinary words
    begun = [_TAG.match(text.lstrip()) for text in texts if text.strip()]
    wrong = dict.fromkeys(tag[0] for tag in begun if tag is not None and tag[0] not in known)
    lacking = bool(required) and None in begun
    if not wrong and not lacking:
        return None
    told = [f"the language tag {', '.join(list(wrong)[:SHOWN])}"] if wrong else []
    told += ["texts without a language tag"] if lacking else []
    listed = ", ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN:,} more" if len(known) > SHOWN else "")
    begin = f"begin each text with one of {listed}" if known else "it was trained without language tags; leave them out"
    return f"the model never saw {' or '.join(told)} in training, so its output means nothing there; {begin}"
