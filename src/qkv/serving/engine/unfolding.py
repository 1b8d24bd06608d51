"""The text of a continuation, token by token: what is certain so far, and whether it has reached a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from ...generation.stopping import cut_at
from ...runs.inference.loaded import LoadedModel

_BEFORE = 8  # tokens of the prompt that decide how the first new tokens are spelled


class Unfolding:
    """Decodes new tokens with a few before them, so a token costs the same wherever it stands."""

    def __init__(self, run: LoadedModel, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self.run, self.prompt, self.stop = run, prompt, stop
        self._ids = list(prompt[-_BEFORE:]) if run.task == "continue" else []
        self._first, self._next = 0, len(self._ids)  # tokens to decode with, and tokens whose text is not known yet
        self._text = ""
        self._told = 0
        self._held = max((len(each) for each in stop), default=1) - 1  # characters that may begin a stop string
        self.is_stopped = False

    def add(self, token: int) -> None:
        self._ids.append(token)
        decode = self.run.words.decode
        before, now = decode(self._ids[self._first : self._next]), decode(self._ids[self._first :])
        if len(now) <= len(before) or now.endswith("\ufffd"):  # the bytes of a character are not complete yet
            return
        new = now[len(before) :]
        self._text += new
        self._first, self._next = self._next, len(self._ids)
        if self.stop:
            seen = self._text[-len(new) - self._held :]
            self.is_stopped = any(each in seen for each in self.stop)

    def ready(self) -> str:
        """The text that can be told now."""
        new = self._text[self._told : len(self._text) - self._held]
        self._told += len(new)
        return new

    def whole(self, ids: Sequence[int]) -> str:
        """The text of all new tokens, as `Run.generate` gives it."""
        return cut_at(self.run.text_of(self.prompt, ids), self.stop)

    def rest(self, whole: str) -> str:
        """What was not told yet of the whole text."""
        return whole[self._told :] if whole.startswith(self._text[: self._told]) else ""
