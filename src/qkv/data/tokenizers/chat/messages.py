"""Messages of conversations, checked and brought into one form: OpenAI's, which chat templates read.

A message has a `role` and a `content`, a text or a list of parts: `{"type": "text", "text": …}`, or media as OpenAI and
transformers write them, `{"type": "image_url", "image_url": {"url": …}}`, `{"type": "image", "path": …}`. The content of an
assistant that calls tools may be null or missing, a `refusal` takes its place, and a `weight` of 0 keeps it out of training.
ShareGPT's messages have `from` and `value`. Alpaca's records have `instruction`, `input` and `output`, and Dolly's
`instruction`, `context` and `response`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from ....core.json_files import checked
from ....core.spec import brief

ROLES = ("system", "developer", "user", "assistant", "tool")
PARTS = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("sound", "audio", "input_audio", "audio_url"), "sound"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    "series": "series",
}
"""The media that parts of a content may be, by their `type` in OpenAI's and transformers' forms."""
PRIVATE = re.compile("[\ue0f0-\ue0f4]")  # marks of conversations.py and sandbox.py
Message = Mapping[str, Any]
Messages = Sequence[Message]
"""`[{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]`."""
Tools = Sequence[Mapping[str, Any]] | str | None
"""The descriptions of tools as JSON schemas, or their JSON."""

_SHAREGPT = {
    "human": "user",
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "claude"), "assistant"),
    **dict.fromkeys(("observation", "function_response"), "tool"),
}
ALPACA = (("input", "output"), ("context", "response"))
"""The fields beside `instruction` in records of Alpaca and Dolly: what it is about, and the answer."""
_FORM = '[{"role": "user", "content": "…"}, …]'


@with_config(ConfigDict(extra="allow"))
class _Function(TypedDict):
    name: str
    arguments: NotRequired[str | dict[str, Any] | None]


@with_config(ConfigDict(extra="allow"))
class _Call(TypedDict):
    function: _Function


_CALL, _FUNCTION, _TOOLS = TypeAdapter(_Call), TypeAdapter(_Function), TypeAdapter(list[dict[str, Any]])


def check_messages(value: object) -> list[dict[str, Any]]:
    """Return messages as dictionaries in OpenAI's form. Raises ValueError that names the first message that is none."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"a conversation is a list of messages, {_FORM}, not {repr(value)[:60]}")
    return [_message(message, f"message {i}") for i, message in enumerate(value)]


def check_tools(value: object) -> list[dict[str, Any]] | None:
    """Return the descriptions of tools that the assistant may call, a list or its JSON; None if there are none."""
    if isinstance(value, str) and value.strip():
        value = _parsed(value, "tools")
    if value is None or value == "" or value == []:
        return None
    tools = checked(_TOOLS, list(value) if isinstance(value, tuple) else value, "tools")
    check_private(tools, "a tool")
    return tools


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"{where} needs a role and a content, and is {repr(message)[:60]}")
    message = _openai({key: value for key, value in message.items() if value is not None or key == "content"}, where)
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(message.get("role"), str):
        raise ValueError(f"{where} needs a role, a text, and is {repr(dict(message))[:60]}")
    if calls is not None:
        message["tool_calls"] = _calls(calls, where)
    if content is None and not (message["role"] == "assistant" and message.get("tool_calls")):
        raise ValueError(f"{where} needs a role and a content, and is {repr(dict(message))[:60]}")
    if isinstance(content, list | tuple):
        message["content"] = [_part(part, f"{where}, part {i},") for i, part in enumerate(content)]
    elif not isinstance(content, str | None):
        raise ValueError(f"{where} needs a content that is a text or a list of parts, not {brief(content)}")
    if message.get("weight", 1) not in (0, 1):
        raise ValueError(
            f"{where} has the weight {brief(message['weight'])}; 0 leaves it out of training, and 1 does not"
        )
    check_private(message, where)
    return message


def _openai(message: dict[str, Any], where: str) -> dict[str, Any]:
    """A message of ShareGPT, or with OpenAI's older `function_call`, in OpenAI's form."""
    if "from" in message and "value" in message and "role" not in message:
        message = {"role": message.pop("from"), "content": message.pop("value"), **message}
        message["role"] = _known_role(message["role"], _SHAREGPT)
    message = {**message, "role": _known_role(message["role"], {})} if "role" in message else message
    if message.get("content") is None and isinstance(message.get("refusal"), str):
        message["content"] = message.pop("refusal")
    if message.get("role") == "function_call" and isinstance(message.get("content"), str):
        call = _parsed(message["content"], f"the content of {where}")
        return {"role": "assistant", "content": "", "tool_calls": call if isinstance(call, list) else [call]}
    if message.get("role") == "function":
        message["role"] = "tool"
    if "function_call" in message:
        message["tool_calls"] = [{"type": "function", "function": message.pop("function_call")}]
    return message


def _known_role(said: Any, others: Mapping[str, str]) -> Any:
    """Return the role that a name means, in lower case or through `others`. Return unknown names as they are."""
    name = said.lower() if isinstance(said, str) else ""
    return others.get(name) or (name if name in ROLES else said)


def _calls(value: Any, where: str) -> list[dict[str, Any]]:
    """Calls of tools whose arguments are objects, as chat templates expect; OpenAI's are their JSON."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: tool_calls should be a list, not {brief(value)}")
    calls = []
    for i, given in enumerate(value):
        wrapped = isinstance(given, Mapping) and "function" in given
        schema: TypeAdapter[Any] = _CALL if wrapped else _FUNCTION
        call = dict(checked(schema, given, f"{where}: tool_calls.{i}"))
        calls.append(call)
        function = dict(call["function"]) if "function" in call else call
        if isinstance(function.get("arguments"), str):
            arguments = function["arguments"].strip()
            function["arguments"] = _parsed(arguments, f"{where}: tool_calls.{i}.arguments") if arguments else {}
        if "function" in call:
            call["function"] = function
    return calls


def _part(part: Any, where: str) -> dict[str, Any]:
    """A part of a content: a text, or a medium with its file, which is None if it is given elsewhere."""
    kind = part.get("type", "text") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    named = PARTS.get(kind) if isinstance(kind, str) else None
    if kind is None or named is None:
        raise ValueError(
            f'{where} should be a text, {{"type": "text", "text": "…"}}, a picture, {{"type": "image", "path": "…"}}, a '
            f"sound or a video, and is {brief(part)}"
        )
    return {"type": named, named: _file(part, kind, where)}


def _file(part: Mapping[str, Any], kind: str, where: str) -> Any:
    """The file of a part: a path, a `data:` address, or an object that holds a picture or a sound."""
    inside = part.get(kind)
    if isinstance(inside, Mapping):  # OpenAI's image_url and input_audio
        if isinstance(inside.get("data"), str):
            return f"data:audio/{inside.get('format', 'wav')};base64,{inside['data']}"
        inside = inside.get("url", inside.get("path"))
    found = [inside, *(part.get(key) for key in ("path", "url", *dict.fromkeys((PARTS[kind], "audio"))) if key != kind)]
    if isinstance(part.get("base64"), str):
        found.append(f"data:{PARTS[kind]};base64,{part['base64']}")
    given = [one for one in found if one is not None]
    if len(given) > 1:
        raise ValueError(f"{where} has several files; give one, as path")
    return given[0] if given else None


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{where} should be JSON, and is {brief(text)}") from None


def check_private(value: object, where: str) -> None:
    """Raise ValueError for a JSON value with characters that mark texts here."""
    if any(PRIVATE.search(text) for text in texts_in(value)):
        raise ValueError(
            f"{where} has one of the private characters U+E0F0 to U+E0F4, which qkv uses as marks; remove it"
        )


def texts_in(value: object) -> Iterator[str]:
    """Every text in a JSON value, names of entries included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (key for key in value if isinstance(key, str))
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)


def text_of(message: Message) -> str:
    """What a message says: its text, parts on separate lines, and its calls of tools as JSON."""
    content = message.get("content")
    said = joined(content) if isinstance(content, list | tuple) else content or ""
    calls = message.get("tool_calls")
    return "\n".join(filter(None, (said, json.dumps(calls, ensure_ascii=False) if calls else "")))


def joined(parts: Sequence[Any], places: Mapping[str, str] | None = None) -> str:
    """The texts of parts on separate lines, with the names of places where media stand, if there are such names."""
    said = ""
    for before, part in zip([None, *parts], parts, strict=False):
        if part["type"] != "text":
            said += (places or {}).get(part["type"], "")
        else:
            said += ("\n" if before is not None and before["type"] == "text" else "") + part["text"]
    return said


def files_in(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """The files of all parts that are media, by the kinds of media, in the order of the parts."""
    found: dict[str, list[Any]] = {}
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            if part["type"] != "text":
                found.setdefault(part["type"], []).append(part[part["type"]])
    return found


# -- records -----------------------------------------------------------------------------------------------------------


def listed(value: object) -> object:
    """The list in a text, in JSON or as Python writes it, which is how data frames store messages in CSV; any other value as
    it is."""
    text = value.strip() if isinstance(value, str) else ""
    if not (text.startswith("[") and text.endswith("]")):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return read(text)
    return value


def messages_in(record: object, field: str) -> object:
    """The messages in a record, which may be one of ShareGPT or Alpaca; None if it has none. A `system` beside them, as
    ShareGPT and Anthropic have it, is the first. Whether they are valid, `check_messages` tells."""
    if not isinstance(record, Mapping):
        return None
    named: Any = record
    for name in field.split("."):
        named = named.get(name) if isinstance(named, Mapping) else None
    if named is None and field == "messages":
        named = record.get("conversations")
    if named is None:
        return _alpaca(record)
    named = listed(named)
    system = record.get("system")
    first = named[0] if isinstance(named, list) and named else None
    starts = isinstance(first, Mapping) and "system" in (first.get("from"), first.get("role"))
    if isinstance(system, str) and system.strip() and isinstance(first, Mapping) and not starts:
        return [{"role": "system", "content": system}, *named]
    return named


def _alpaca(record: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Messages of Alpaca's record: `instruction`, `input` below it, and `output`; perhaps `system` and a `history`, a list
    of pairs or its JSON; what is no pair of it is returned as it is, for `check_messages`. Dolly's has `context` and
    `response` in place of `input` and `output`."""
    more, answer = next(
        ((record.get(one), record.get(other)) for one, other in ALPACA if other in record), (None, None)
    )
    asked = record.get("instruction")
    if not isinstance(asked, str) or not isinstance(answer, str):
        return None
    history = listed(record.get("history"))
    none = history is None or history != history or (isinstance(history, str) and not history.strip())
    turns = [] if none else history if isinstance(history, list | tuple) else [history]
    question = f"{asked}\n{more}" if isinstance(more, str) and more.strip() else asked
    said: list[Any] = [{"role": "system", "content": record["system"]}] if record.get("system") else []
    for turn in (*turns, (question, answer)):
        pair = isinstance(turn, list | tuple) and len(turn) == 2
        roles = ("user", "assistant")
        said += [{"role": role, "content": text} for role, text in zip(roles, turn, strict=True)] if pair else [turn]
    return said


def last_reply(messages: list[dict[str, Any]]) -> int | None:
    """The index of the assistant's last message that follows someone else's."""
    turns = [message["role"] == "assistant" for message in messages]
    return max((i for i in range(1, len(turns)) if turns[i] and not turns[i - 1]), default=None)
