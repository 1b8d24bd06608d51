"""Encode conversations as token ids by a chat template, with a mask of the assistant's tokens.

The ids come from the whole text that the chat template renders. Control tokens come from the template only: their names
in messages are marked by a private character in the rendered text, and then spelled out like any other text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, zip_longest
from typing import Any, NamedTuple

import tokenizers
from tokenizers import AddedToken

from ....core.spec import brief, counted, nearest
from ..pipelines import any_of
from ..tokenizer_json import encoding_errors
from .messages import ROLES, Messages, Tools, check_messages, check_private, check_tools, joined
from .template import ChatTemplate, TextPart

GUARD = "\ue0f2"  # before the name of a control token in a message
BEGINS, ENDS = "\ue0f3", "\ue0f4"  # around the number of a control token from the template
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields of an assistant's message with what it thought before its reply."""
_AFTER_THE_END = re.compile(rf"(?<={ENDS})\s+\Z")


class Places(NamedTuple):
    """The places of media of one kind: their token, the text in each place if it is not the token alone, and what ends a
    conversation with such media."""

    token: str
    texts: Sequence[str] | None = None
    end: str = ""


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

    def prompt(
        self,
        messages: Messages,
        tools: Tools = None,
        places: Mapping[str, Places] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the ids of a conversation up to the model's reply. `tools` describe (as JSON schemas) the functions
        that the model may call; `places` are those of media, one for each picture or sound, by their kinds;
        `variables` are values of the template's other variables. Raises ValueError if the conversation ends with the
        assistant, for a part of a kind that has no place, and for a variable that the template does not have."""
        places = places or {}
        checked = self._checked(messages, {kind: place.token for kind, place in places.items()})
        tools = self._checked_tools(tools)
        if checked[-1]["role"] == "assistant":
            raise ValueError("the last message is the assistant's; end with a message to reply to")
        values = self._checked_variables(variables or {})
        text = self.template.render(checked, prompt=True, tools=tools, **values)
        for place in places.values():
            text = self._filled(text, place) + place.end
        return self._encoded([TextPart(text, False)])[0]

    def _filled(self, text: str, place: Places) -> str:
        """A rendered conversation with its texts in the places of media. Raises ValueError if they differ in number."""
        if place.texts is None:
            return text
        twin = self._twins.get(place.token, place.token)
        parts = re.split(f"(?<!{GUARD}){re.escape(place.token)}|{re.escape(twin)}", text)
        if len(parts) != len(place.texts) + 1:
            raise ValueError(
                f"the chat template writes {counted(len(parts) - 1, 'place')} {place.token} for "
                f"{counted(len(place.texts), 'part')} of that kind; give the tokenizer the template of its model"
            )
        texts = [one.replace(place.token, twin) for one in place.texts]
        return "".join(part + more for part, more in zip_longest(parts, texts, fillvalue=""))

    def row(
        self, messages: Messages, tools: Tools = None, places: Mapping[str, str] | None = None
    ) -> tuple[list[int], list[int]]:
        """Return the ids of a conversation, and for each 1 if the assistant says it (the end of its turn included), else 0.

        Raises ValueError if the assistant says nothing, or the template doesn't show what.
        """
        checked, tools = self._checked(messages, places), self._checked_tools(tools)
        self._check_thoughts(checked)
        if not any(message["role"] == "assistant" for message in checked):
            raise ValueError("the assistant says nothing in this conversation, so there is nothing to learn from it")
        ids, learned = self._encoded(self.template.parts(checked, tools=tools))
        if not any(learned):
            why = "the chat template leaves out what the assistant says"
            silent = all(message.get("weight") == 0 for message in checked if message["role"] == "assistant")
            raise ValueError("every message of the assistant has the weight 0" if silent else why)
        return ids, learned

    def text(self, messages: Messages, tools: Tools = None, prompt: bool = False, **variables: Any) -> str:
        """Return a conversation as text; with `prompt` it ends where the model's reply begins. `variables` are values of the
        template's other variables."""
        checked, tools = self._checked(messages), self._checked_tools(tools)
        return self.template.render(checked, prompt=prompt, tools=tools, **variables).replace(GUARD, "")

    def encode(
        self, messages: Messages, tools: Tools = None, prompt: bool = False, mask: bool = False, **variables: Any
    ) -> tuple[list[int], list[int]]:
        """Return the ids of `text`, and with `mask` 1 for each token that the assistant says, else 0, as in `row`."""
        checked, tools = self._checked(messages), self._checked_tools(tools)
        whole = self.template.render(checked, prompt=prompt, tools=tools, **variables)
        if not mask:
            return self._encoded([TextPart(whole, False)])
        parts = self.template.parts(checked, tools=tools, **variables)
        more = whole[len("".join(part.text for part in parts)) :]  # where a reply begins
        return self._encoded([*parts, TextPart(more, False)] if more else parts)

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The control token that ends an assistant's turn in the template; empty if there is none."""
        try:
            ids, learned = self.row([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
        except ValueError:  # the template needs more than two messages
            return ()
        last = max(i for i, counts in enumerate(learned) if counts)
        return (ids[last],) if ids[last] in self._ids.values() else ()

    def _checked(self, messages: Messages, places: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Check the roles of messages, and mark every name of a control token in their texts."""
        checked, places = check_messages(messages), places or {}
        marks = {kind: self._twins.get(name, name) for kind, name in places.items()}
        for i, message in enumerate(checked):
            role = message["role"]
            if role not in ROLES and not any(f"{quote}{role}{quote}" in self.template.source for quote in "'\""):
                raise ValueError(f"message {i} has the role {brief(role)}; {nearest(role, ROLES)}")
            if isinstance(message.get("content"), list):
                _check_parts(message["content"], places, f"message {i}")
                parts = message["content"]
                message["content"] = list(map(_plain, parts)) if self._reads_parts else joined(parts, marks)
            if message.get("tool_calls") and not self.template.mentions("tool_calls"):
                raise ValueError(
                    f"message {i} calls a tool, and the chat template has no place for that; give the tokenizer a "
                    "template that mentions tool_calls"
                )
        return [self._guarded(message) for message in checked]

    def _check_thoughts(self, messages: list[dict[str, Any]]) -> None:
        for i, message in enumerate(messages):
            lost = (key for key in THOUGHTS if message.get(key) and not self.template.mentions(key))
            if (key := next(lost, None)) is not None:
                raise ValueError(
                    f"message {i} has {key}, and the chat template has no place for that; give the tokenizer a template "
                    f"that mentions {key}, or remove it from the messages"
                )

    def _checked_tools(self, tools: Any) -> list[dict[str, Any]] | None:
        checked = check_tools(tools)
        if checked is not None and not self.template.mentions("tools"):
            raise ValueError(
                "the chat template has no place for tools; give the tokenizer a template that mentions them, or leave "
                "them out (data.tools=null)"
            )
        return None if checked is None else [self._changed_names(tool, self._any) for tool in checked]

    def _checked_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the template's own variables, in which names of control tokens are marked."""
        for name in variables:
            if name in ("messages", "tools", "add_generation_prompt") or name in self.template.tokens:
                raise ValueError(f"the chat template's variable {name} is set here; leave it out")
            if not name.isidentifier() or not self.template.mentions(name):
                raise ValueError(f"the chat template has no variable {brief(name)}; leave it out")
        check_private(dict(variables), "a variable of the chat template")
        return {name: self._changed_names(value, self._any) for name, value in variables.items()}

    @cached_property
    def _reads_parts(self) -> bool:
        """Whether the template reads a content that is a list of parts; others would print the list."""
        with suppress(ValueError):
            plain, parts = (
                self.template.render([{"role": "user", "content": content}], prompt=True)
                for content in ("a", [{"type": "text", "text": "a"}])
            )
            return plain == parts
        return False

    def _guarded(self, message: dict[str, Any]) -> dict[str, Any]:
        names = self._control if message["role"] == "assistant" else self._any
        return {key: value if key == "role" else self._changed_names(value, names) for key, value in message.items()}

    def _changed_names(self, value: Any, names: re.Pattern[str]) -> Any:
        return _changed(value, lambda text: names.sub(lambda name: GUARD + name[0], text))

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
        """Replace the template's control tokens by their twins, and unmark control tokens in messages."""

        def spell(name: re.Match[str]) -> str:
            return name[0][1:] if name[0].startswith(GUARD) else self._twins[name[0]]

        return self._named.sub(spell, text).replace(GUARD, "")


def text_and(media: Iterable[str]) -> str:
    """What a model with these kinds of media reads, in words: "text, images and sounds"."""
    *others, last = ["text", *(kind if kind == "series" else f"{kind}s" for kind in media)]
    return f"{', '.join(others)} and {last}" if others else last


def _check_parts(parts: list[dict[str, Any]], places: Mapping[str, str], where: str) -> None:
    """Raise ValueError for a part that the model doesn't read."""
    for i, part in enumerate(parts):
        if part["type"] != "text" and part["type"] not in places:
            raise ValueError(
                f"{where}, part {i}, is of the type {part['type']}, and this model reads {text_and(places)}"
                + ("" if places else " alone; train one that reads media with task.kind=omni")
            )


def _plain(part: dict[str, Any]) -> dict[str, Any]:
    """A part without its file, as templates read it."""
    return part if part["type"] == "text" else {"type": "audio" if part["type"] == "sound" else part["type"]}


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
    """Apply `change` to every text in a JSON value, names of entries included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_changed(key, change): _changed(item, change) for key, item in value.items()}
    return [_changed(item, change) for item in value] if isinstance(value, list | tuple) else value
