"""Calls of tools: how a chat template writes them, the grammar that allows them, and how they are read from a reply.

The form is what the template renders for a call: Hermes' and Qwen's `<tool_call>` blocks, Llama's JSON object, Mistral's
`[TOOL_CALLS]` list, and others that write JSON with a name and arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, Self

from ....core.spec import brief, nearest
from ....data.tokenizers.tokenizer import Tokenizer
from ....generation.grammar.rules import Grammar
from ....generation.stopping import cut_at

_NAMES = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEYS = r'", ?"(?:arguments|parameters)": ?'
_PROBE = re.compile(
    rf'(?P<head>\{{(?:"type": ?"function", ?)?"name": ?")probe(?P<keys>{_KEYS})\{{"place"(?P<colon>: ?)1\}}'
    r'(?:, ?"(?:id|call_id)": ?"[^"]*")?\}'
)
CALL = re.compile(
    r'\{\s*(?:"type"\s*:\s*"function"\s*,\s*)?"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)'
)
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


class ToolCall(NamedTuple):
    """A call: the name of a function, and its arguments as JSON, which end early if the reply was cut off."""

    name: str
    arguments: str


class Function(NamedTuple):
    """A function that may be called, and the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


def functions(tools: Sequence[Mapping[str, Any]]) -> list[Function]:
    """The functions that tools of OpenAI's form describe. Raises ValueError for tools of another kind."""
    found: list[Function] = []
    for i, tool in enumerate(tools):
        about = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(about, dict):
            raise ValueError(f'tools.{i} is {{"type": "function", "function": {{…}}}}, not {brief(dict(tool))}')
        name, parameters = about.get("name"), about.get("parameters")
        if not isinstance(name, str) or not _NAMES.fullmatch(name):
            raise ValueError(f"tools.{i} needs a name of 1 to 64 letters, digits, _, . and -, not {brief(name)}")
        if name in (one.name for one in found):
            raise ValueError(f"two tools are called {name}; calls name them, so rename one")
        nothing = {"type": "object", "properties": {}, "additionalProperties": False}
        if not isinstance(parameters, dict | None):
            raise ValueError(f"the parameters of {name} are a JSON schema, an object, not {brief(parameters)}")
        if parameters and parameters.get("type", "object") != "object":
            raise ValueError(f"the parameters of {name} are of the type object, not {brief(parameters['type'])}")
        found.append(Function(name, {**(parameters or nothing), "type": "object"}))
    return found


def chosen(given: Sequence[Function], choice: str | Mapping[str, Any] | None) -> list[Function]:
    """The functions that `tool_choice` leaves. Raises ValueError for one that there is not."""
    if not isinstance(choice, Mapping):
        return list(given)
    about = choice.get("function", choice)
    name = about.get("name") if isinstance(about, Mapping) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        raise ValueError(
            'tool_choice is none, auto, required or {"type": "function", "function": {"name": …}}, '
            f"not {brief(dict(choice))}"
        )
    found = [one for one in given if one.name == name]
    if not found:
        raise ValueError(f"tool_choice names {brief(name)}; {nearest(name[:100], [one.name for one in given])}")
    return found


@dataclass(frozen=True)
class CallForm:
    """How calls stand in a reply: `opening`, calls with `between` between them, `closing`.

    A call is `head`, the name, `keys`, the arguments, `}`.

    between: None if a reply has one call at most.
    markers: special tokens in these texts, which decoding leaves out.
    """

    opening: str
    head: str
    keys: str
    closing: str
    between: str | None = None
    is_compact: bool = False
    markers: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, words: Tokenizer) -> Self:
        """The form of a tokenizer's chat template. Raises ValueError for a template whose calls are in another one."""
        name = words.name
        if not (words.chat.template.mentions("tools") and words.chat.template.mentions("tool_calls")):
            raise ValueError(
                "the chat template has no place for tools; leave them out, or give the tokenizer a template that "
                "mentions tools and tool_calls"
            )
        found = _rendered(words, 2) or _rendered(words, 1)
        if found is None:
            raise ValueError(
                f"the chat template of {name} writes calls in a form that is not known here; known are JSON objects with "
                'a name and arguments, as Hermes, Qwen, Llama and Mistral write them; send tool_choice "none"'
            )
        text, calls = found
        opening = _THOUGHTS.sub("", text[: calls[0].start()]).lstrip()
        between = text[calls[0].end() : calls[1].start()] if len(calls) > 1 else None
        closing = text[calls[-1].end() :]
        if ends := [closing.index(each) for each in words.controls if each in closing]:
            closing = closing[: min(ends)]
        around = opening + (between or "") + closing
        markers = {i: each for each, i in words.controls.items() if each in around}
        first = calls[0]
        return cls(opening, first["head"], first["keys"], closing.rstrip(), between, first["colon"] == ":", markers)

    @property
    def trigger(self) -> str:
        """The first word of a call, which texts don't have; empty if a call is a reply by itself."""
        special = next((name for name in self.markers.values() if self.opening.startswith(name)), None)
        return special or (self.opening.split() or [""])[0]

    def grammar(self, given: Sequence[Function], *, required: bool, several: bool) -> Grammar:
        """Replies that call one of these functions (several: or more of them), or, unless required, that are any text."""
        calls = "call" if self.between is None or not several else f"call ({self._lark(self.between)} call)*"
        calls = " ".join(filter(None, (calls, self._lark(self.closing))))
        rest = self._lark(self.opening[len(self.trigger) :])
        rules = [
            f"call: {' | '.join(f'call_{i}' for i in range(len(given)))}",
            *(f"call_{i}: {self._call(one)}" for i, one in enumerate(given)),
        ]
        if required:
            start = " ".join(filter(None, (self._lark(self.opening), calls)))
        elif not self.trigger:
            start = f"TEXT | {calls}"
            rules.append(f"TEXT: /(?s:.*)/ & ~/(?s:{re.escape(self.head)}.*)/")
        else:
            special = self.trigger in self.markers.values()
            start = f"TEXT | {'TEXT ' + self._lark(self.trigger) if special else 'trigger'} {rest} {calls}"
            rules.append("TEXT: /(?s:.*)/")
            if not special:
                rules.append(f"trigger[lazy]: TEXT {self._lark(self.trigger)}")
        return Grammar.lark("\n".join([f"start: {start}", *rules]))

    def _call(self, one: Function) -> str:
        spaces = (",", ":") if self.is_compact else (", ", ": ")
        options = {"whitespace_flexible": False, "item_separator": spaces[0], "key_separator": spaces[1]}
        schema = json.dumps({**one.parameters, "x-guidance": options})
        return f'{json.dumps(self.head + one.name + self.keys)} %json {schema} "}}"'

    def _lark(self, text: str) -> str:
        """A text in llguidance's notation: special tokens by their ids."""
        ids = {name: i for i, name in self.markers.items()}
        pieces = re.split("(" + "|".join(map(re.escape, ids)) + ")", text) if ids else [text]
        return " ".join(f"<[{ids[each]}]>" if each in ids else json.dumps(each) for each in pieces if each)

    def spelled(self, words: Tokenizer, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
        """Return the text of a reply, including the special tokens that mark calls."""
        text, run = "", list[int]()
        for i in ids:
            if i in self.markers:
                text, run = text + words.decode(run) + self.markers[i], []
            else:
                run.append(i)
        return cut_at(text + words.decode(run), stop)

    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """What a reply says, and the calls in it."""
        if self.trigger:
            said, marker, rest = text.partition(self.trigger)
            if not marker:
                return text, []
        else:
            said, rest = "", text
            if not CALL.match(text.lstrip()):
                return text, []
        calls, at = list[ToolCall](), 0
        while (found := CALL.search(rest, at)) is not None:
            arguments, at = _object(rest, found.end())
            calls.append(ToolCall(found[1], arguments))
        return said.rstrip(), calls


def _rendered(words: Tokenizer, count: int) -> tuple[str, list[re.Match[str]]] | None:
    """A template's text of a reply with some calls, and where they stand in it; None if they are not JSON."""
    function = {"name": "probe", "arguments": {"place": 1}}
    ids = ("aaaaaaaa1", "aaaaaaaa2")  # Mistral's have nine characters
    calls = [{"type": "function", "id": each, "function": function} for each in ids[:count]]
    tools = [{"type": "function", "function": {"name": "probe", "description": "", "parameters": {"type": "object"}}}]
    asked, reply = {"role": "user", "content": "a"}, {"role": "assistant", "content": ""}
    try:
        whole = words.chat.text([asked, {**reply, "tool_calls": calls}], tools)
        plain = words.chat.text([asked, {**reply, "content": "probe"}], tools)
    except ValueError:  # as templates for one call refuse two
        return None
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, plain, strict=False)))
    text = whole[shared:]
    found = list(_PROBE.finditer(text))
    return (text, found) if len(found) == count else None


def _object(text: str, at: int) -> tuple[str, int]:
    """The JSON object that begins at a place, and where it ends; all the rest if it does not end."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        end = len(text)
    return text[at:end], end
