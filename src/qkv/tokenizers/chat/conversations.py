"""Encode conversations as token ids by a chat template, with a mask of the assistant's tokens.

The ids are those of the whole text that the chat template renders. Control tokens come from the template only: their names
in messages are marked by a private character in the rendered text, and then spelled out like any other text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import tokenizers
from tokenizers import AddedToken

from ...core.spec import nearest
from ..pipelines import any_of
from ..tokenizer_json import encoding_errors
from .template import ChatTemplate, TextPart

ROLES = ("system", "developer", "user", "assistant", "tool")
GUARD = "\ue0f2"  # before the name of a control token in a message
BEGINS, ENDS = "\ue0f3", "\ue0f4"  # around the number of a control token from the template
_PRIVATE = re.compile("[\ue0f0-\ue0f4]")  # these, and those of sandbox.py
_AFTER_THE_END = re.compile(rf"(?<={ENDS})\s+\Z")

Message = Mapping[str, Any]
Messages = Sequence[Message]
"""`[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]`."""


def check_messages(value: Any) -> list[dict[str, Any]]:
    """Return messages as dictionaries. Raises ValueError if one is not an object with a role and a content."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(
            'a conversation is a list of messages, [{"role": "user", "content": "…"}, …], not ' + repr(value)[:60]
        )
    for i, message in enumerate(value):
        if not isinstance(message, Mapping) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise ValueError(f"message {i} needs a role and a content, both texts, and is {repr(message)[:60]}")
        if any(_PRIVATE.search(text) for text in _texts(message)):
            raise ValueError(
                f"message {i} has one of the private characters U+E0F0 to U+E0F4, which qkv uses as marks; remove it"
            )
    return [dict(message) for message in value]


class Conversations:
    """Encodes conversations by a tokenizer's chat template.

    Control tokens come from the template only. Markers in the template (`<tool_call>`, `<think>`) may also come from the
    assistant's messages.
    """

    def __init__(
        self, raw: tokenizers.Tokenizer, controls: Mapping[str, int], markers: Iterable[str], template: ChatTemplate
    ) -> None:
        self.template = template
        written = [name for name in markers if name in template.source and not name.isspace()]
        self._ids = {**controls, **{name: i for name in written if (i := raw.token_to_id(name)) is not None}}
        self._twins = {name: f"{BEGINS}{i}{ENDS}" for i, name in enumerate(self._ids)}
        self._raw = _with_twins(raw, written, self._twins)
        twins = ((self._raw.token_to_id(twin), name) for name, twin in self._twins.items())
        self._real = {twin: self._ids[name] for twin, name in twins if twin is not None}
        self._control, self._any = any_of(controls), any_of(self._ids)
        self._named = re.compile(f"{GUARD}?(?:{self._any.pattern})")

    def prompt(self, messages: Messages) -> list[int]:
        """Return the ids of a conversation up to the model's reply. Raises ValueError if it ends with the assistant."""
        checked = self._checked(messages)
        if checked[-1]["role"] == "assistant":
            raise ValueError("the last message is the assistant's; end with a message to reply to")
        return self._encoded([TextPart(self.template.render(checked, prompt=True), False)])[0]

    def row(self, messages: Messages) -> tuple[list[int], list[int]]:
        """Return the ids of a conversation, and for each 1 if the assistant says it (the end of its turn included), else 0.

        Raises ValueError if the assistant says nothing, or the template doesn't show what.
        """
        checked = self._checked(messages)
        if not any(message["role"] == "assistant" for message in checked):
            raise ValueError("the assistant says nothing in this conversation, so there is nothing to learn from it")
        ids, learned = self._encoded(self.template.parts(checked))
        if not any(learned):
            raise ValueError("the chat template leaves out what the assistant says")
        return ids, learned

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The control token that ends an assistant's turn in the template; empty if there is none."""
        try:
            ids, learned = self.row([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
        except ValueError:  # the template needs more than two messages
            return ()
        last = max(i for i, counts in enumerate(learned) if counts)
        return (ids[last],) if ids[last] in self._ids.values() else ()

    def _checked(self, messages: Messages) -> list[dict[str, Any]]:
        """Check the roles of messages, and mark every name of a control token in their texts."""
        checked = check_messages(messages)
        for i, message in enumerate(checked):
            role = message["role"]
            if role not in ROLES and not any(f"{quote}{role}{quote}" in self.template.source for quote in "'\""):
                raise ValueError(f"message {i} has the role {role!r}; {nearest(role, ROLES)}")
        return [self._guarded(message) for message in checked]

    def _guarded(self, message: dict[str, Any]) -> dict[str, Any]:
        names = self._control if message["role"] == "assistant" else self._any
        return {
            key: value if key == "role" else _changed(value, lambda text: names.sub(lambda name: GUARD + name[0], text))
            for key, value in message.items()
        }

    def _encoded(self, parts: Iterable[TextPart]) -> tuple[list[int], list[int]]:
        """Return ids, and for each 1 if it begins in a part to be learned."""
        spelled = [piece for part in parts for piece in _ended(TextPart(self._spelled(part.text), part.learned))]
        text = "".join(part.text for part in spelled)
        with encoding_errors([text]):
            encoding = self._raw.encode(text, add_special_tokens=False)
        begins = list(accumulate((len(part.text) for part in spelled[:-1]), initial=0))
        learned = [int(spelled[bisect_right(begins, at) - 1].learned) for at, _ in encoding.offsets]
        return [self._real.get(i, i) for i in encoding.ids], learned

    def _spelled(self, text: str) -> str:
        """Replace the template's control tokens by their twins, and unmark those in messages."""

        def spell(name: re.Match[str]) -> str:
            return name[0][1:] if name[0].startswith(GUARD) else self._twins[name[0]]

        return self._named.sub(spell, text).replace(GUARD, "")


def _with_twins(raw: tokenizers.Tokenizer, written: Iterable[str], twins: Mapping[str, str]) -> tokenizers.Tokenizer:
    """Return a tokenizer that spells out the names of control tokens, and reads a token only from its twin."""
    flags = {token.content: token for token in raw.get_added_tokens_decoder().values()}
    twinned = tokenizers.Tokenizer.from_str(raw.to_str())
    twinned.post_processor = None  # it would cut spaces off the offsets
    twinned.add_special_tokens([_like(flags[name], name, special=True) for name in written])
    twinned.add_tokens([_like(flags[name], twin, special=False) for name, twin in twins.items()])
    twinned.encode_special_tokens = True  # spell them out
    return twinned


def _like(token: AddedToken, name: str, special: bool) -> AddedToken:
    flags = {flag: getattr(token, flag) for flag in ("lstrip", "rstrip", "single_word", "normalized")}
    return AddedToken(name, special=special, **flags)


def _ended(part: TextPart) -> Iterator[TextPart]:
    """Split off white space after the token that ends the turn: the assistant doesn't learn it."""
    after = _AFTER_THE_END.search(part.text) if part.learned else None
    if after is None:
        yield part
    else:
        yield TextPart(part.text[: after.start()], True)
        yield TextPart(part.text[after.start() :], False)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to every text in a JSON value."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _changed(item, change) for key, item in value.items()}
    return [_changed(item, change) for item in value] if isinstance(value, list | tuple) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)
