"""Whisper's special tokens, as a run's generation settings and tokenizer name them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....core.spec import brief
from ....data.tokenizers.tokenizer import Tokenizer
from ..loaded import LoadedModel
from .languages import code_of

TASKS = ("transcribe", "translate")


@dataclass(frozen=True)
class Codes:
    """Tokens that say what to write, and settings of the times of words.

    start, ends: of a text; languages: by code; tasks: by name; previous: before the text that was said before.
    without:     asks for a text without timestamps, which are the tokens after it; None for a model without them.
    latest:      the latest first timestamp, in steps.
    heads:       (layer, head) of cross-attention by which words are aligned with the sound; None if none are named.
    """

    start: int
    ends: tuple[int, ...]
    languages: Mapping[str, int]
    tasks: Mapping[str, int]
    without: int | None = None
    previous: int | None = None
    latest: int | None = None
    heads: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, run: LoadedModel) -> Codes:
        """The tokens of a run. Raises ValueError if its settings name tokens outside the vocabulary."""
        said = {} if run.origin is None else dict(run.origin.generation or {})
        words, size = run.words, run.model.vocab_size
        start, ends = run.start, tuple(run.ends)
        if start is None or not ends:
            raise ValueError(f"{run.name} names no token that starts a text, or none that ends it")

        def token(key: str, *names: str) -> int | None:
            found = said.get(key)
            return (
                next((n for n in map(words.raw.token_to_id, names) if n is not None), None) if found is None else found
            )

        languages = _by_name(said, "lang_to_id") or _listed(words)
        tasks = _by_name(said, "task_to_id") or {
            name: number for name in TASKS if (number := words.raw.token_to_id(f"<|{name}|>")) is not None
        }
        if not said.get("is_multilingual", bool(languages)):
            languages, tasks = {}, {}
        without = token("no_timestamps_token_id", "<|notimestamps|>")
        previous, latest = token("prev_sot_token_id", "<|startofprev|>"), said.get("max_initial_timestamp_index")
        numbers = [*languages.values(), *tasks.values(), *(n for n in (without, previous) if n is not None)]
        if wrong := [n for n in numbers if type(n) is not int or not 0 <= n < size]:
            raise ValueError(
                f"{run.name}: its generation settings name the token {brief(wrong[0])}, outside 0 … {size - 1}"
            )
        if latest is not None and (type(latest) is not int or latest < 0):
            raise ValueError(f"{run.name}: max_initial_timestamp_index is {brief(latest)}, which is no number of steps")
        return cls(start, ends, languages, tasks, without, previous, latest, _heads(said.get("alignment_heads")))

    @property
    def first(self) -> int | None:
        """The first timestamp, of 0 seconds."""
        return None if self.without is None else self.without + 1

    def prompt(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        """The tokens that say what to write: start, language, task, and whether without timestamps.

        Raises ValueError for a language or a task that the model lacks.
        """
        if task not in TASKS:
            raise ValueError(f"the task is transcribe or translate, not {brief(task)}")
        ids = [self.start]
        if self.languages:
            assert language is not None
            ids.append(self.languages[code_of(language, self.languages)])
        elif language is not None and code_of(language, {"en", language.lower()}) != "en":
            raise ValueError(
                f"this model transcribes one language, so there is no choosing {brief(language)}; leave it out"
            )
        if self.tasks:
            ids.append(self.tasks[task])
        elif task == "translate":
            raise ValueError("this model has no task translate; it only transcribes")
        return ids if timestamps or self.without is None else [*ids, self.without]


def _by_name(said: Mapping[str, Any], key: str) -> dict[str, int]:
    found = said.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ValueError(f"{key} is {brief(found)}, not an object of names and tokens")
    return {str(name).removeprefix("<|").removesuffix("|>"): number for name, number in found.items()}


def _listed(words: Tokenizer) -> dict[str, int]:
    """The language tokens of a vocabulary."""
    found = ((re.fullmatch(r"<\|([a-z]{2,3})\|>", token), number) for token, number in words.raw.get_vocab().items())
    return {match[1]: number for match, number in found if match}


def _heads(said: Any) -> tuple[tuple[int, int], ...] | None:
    if said is None:
        return None
    pairs = isinstance(said, Sequence) and all(
        isinstance(pair, Sequence) and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair) for pair in said
    )
    if not pairs or not said:
        raise ValueError(f"alignment_heads are pairs of a layer and a head, not {brief(said)}")
    return tuple((layer, head) for layer, head in said)
