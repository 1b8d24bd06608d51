"""Replies with calls of tools, as they are streamed: each token is decoded and read once, however long the reply is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal
from uuid import uuid4

from ....data.tokenizers.tokenizer import Tokenizer
from ....generation.stopping import cut_at
from .forms import CALL, CallForm, ToolCall

_MARKS = re.compile(r'["\\{}\[\]]')
_LONGEST_HEAD = 2048  # characters of a call before its arguments


class Spelling:
    """The text of a reply, including the special tokens that mark calls, from its tokens one by one.

    It stops before a stop string, and what may begin one is held back, as are bytes of a character that is not complete.
    """

    def __init__(self, form: CallForm, words: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.form, self.words, self.stop = form, words, stop
        self._ids: list[int] = []
        self._first = self._next = 0  # tokens to decode with, and tokens whose text is not known yet
        self._held = ""
        self._is_cut = False

    def add(self, ids: Sequence[int]) -> str:
        """The text that is certain with some more tokens."""
        text = self._held + "".join(map(self._spelled, ids))
        if self._is_cut:
            return ""
        cut = cut_at(text, self.stop)
        self._is_cut = len(cut) < len(text)
        held = 0 if self._is_cut else min(max(map(len, self.stop), default=1) - 1, len(cut))
        self._held = cut[len(cut) - held :]
        return cut[: len(cut) - held]

    def _spelled(self, token: int) -> str:
        marker = self.form.markers.get(token)
        if marker is not None:
            self._ids, self._first, self._next = [], 0, 0
            return marker
        self._ids.append(token)
        before = self.words.decode(self._ids[self._first : self._next])
        now = self.words.decode(self._ids[self._first :])
        if len(now) <= len(before) or now.endswith("\ufffd"):
            return ""
        self._first, self._next = self._next, len(self._ids)
        return now[len(before) :]


class CallStream:
    """What is new in a reply with calls, piece by piece, as deltas of OpenAI's API."""

    def __init__(self, form: CallForm, words: Tokenizer, stop: Sequence[str]) -> None:
        self.form, self.words, self.stop = form, words, stop
        self.calls = 0
        self._spelling = Spelling(form, words, stop)
        self._place: Literal["text", "said", "between", "arguments"] = "said"
        self._pending = ""  # read, but not told yet
        self._told = 0  # characters that the reply says
        self._arguments: list[int] = []  # characters that were told of each call's
        self._end = JsonEnd()

    def delta(self, ids: Sequence[int], is_end: bool) -> dict[str, Any]:
        """The change by more tokens; those of an end are all of the reply."""
        if is_end:
            return self._rest(ids)
        delta: dict[str, Any] = {}
        changes: dict[int, dict[str, Any]] = {}
        self._pending += self._spelling.add(ids)
        for said, change in self._read():
            if said:
                delta["content"] = delta.get("content", "") + said
                self._told += len(said)
            if change is not None:
                index = change["index"]
                if index in changes:
                    changes[index]["function"]["arguments"] += change["function"]["arguments"]
                else:
                    changes[index] = change
        if changes:
            delta["tool_calls"] = list(changes.values())
        return delta

    def _rest(self, ids: Sequence[int]) -> dict[str, Any]:
        """What was not told of the whole reply."""
        said, calls = self.form.read(self.form.spelled(self.words, ids, self.stop))
        delta: dict[str, Any] = {"content": said[self._told :]} if len(said) > self._told else {}
        told = self._arguments
        changes = [_more(i, one.arguments[told[i] :]) for i, one in enumerate(calls[: len(told)])]
        changes += [{"index": i, **described(one)} for i, one in enumerate(calls) if i >= len(told)]
        if found := [change for change in changes if change.get("id") or change["function"]["arguments"]]:
            delta["tool_calls"] = found
        self.calls = len(calls)
        return delta

    def _read(self) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """What the pending text says, and calls or more of their arguments."""
        if self._place == "said":
            yield self._say(), None
        if self._place == "text":
            said, self._pending = self._pending, ""
            yield said, None
        while self._place in ("between", "arguments"):
            if self._place == "between":
                found = CALL.search(self._pending)
                if found is None:
                    self._pending = self._pending[-_LONGEST_HEAD:]
                    return
                self._pending = self._pending[found.end() :]
                self._place, self._end = "arguments", JsonEnd()
                yield "", {"index": len(self._arguments), **described(ToolCall(found[1], ""))}
                self._arguments.append(0)
                self.calls += 1
            length, is_whole = self._end.of(self._pending)
            arguments, self._pending = self._pending[:length], self._pending[length:]
            self._arguments[-1] += length
            if arguments:
                yield "", _more(len(self._arguments) - 1, arguments)
            if not is_whole:
                return
            self._place = "between"

    def _say(self) -> str:
        """What the reply says for certain; `_place` changes where calls begin, or if none can follow."""
        text, trigger = self._pending, self.form.trigger
        if not trigger:
            start, head = text.lstrip(), self.form.head
            if CALL.match(start):
                self._place = "between"
            elif not (head.startswith(start) or start.startswith(head)):
                self._place = "text"
            return ""
        said, marker, rest = text.partition(trigger)
        if marker:
            self._place, self._pending = "between", rest
            return said.rstrip()
        lengths = range(min(len(trigger), len(text)), 0, -1)
        begun = next((length for length in lengths if trigger.startswith(text[-length:])), 0)
        said = text[: len(text) - begun].rstrip()
        self._pending = text[len(said) :]
        return said


class JsonEnd:
    """Finds the end of a JSON value that arrives in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = self._has_begun = False

    def of(self, text: str) -> tuple[int, bool]:
        """The characters of the next piece that belong to the value, and whether it ends there."""
        at = 0
        if self._is_escaped and text:
            at, self._is_escaped = 1, False
        if text and not self._has_begun and text[0] not in '"{[':  # a number or a word
            found = re.search(r"[,}\]\s]", text)
            return (len(text), False) if found is None else (found.start(), True)
        self._has_begun = self._has_begun or bool(text)
        while (found := _MARKS.search(text, at)) is not None:
            mark, at = found[0], found.end()
            if mark == "\\":
                if at == len(text):
                    self._is_escaped = True
                at += 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
            if self._depth == 0 and not self._in_string and mark != "\\":
                return at, True
        return len(text), False


def described(one: ToolCall) -> dict[str, Any]:
    """A call in OpenAI's form, with a new id."""
    about = {"name": one.name, "arguments": one.arguments}
    return {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": about}


def _more(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}
