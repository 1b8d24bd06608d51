"""Chat templates: Jinja templates that format a conversation as one text, run in a sandbox.

A template is a program that comes with a model. It runs in a separate process (process.py) with access to nothing but its
inputs, and with limits on time and memory (sandbox.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LARGEST_TEMPLATE = 256 << 10  # characters
OPENED, CLOSED = "\ue0f0", "\ue0f1"  # what sandbox.py puts around the text of a {% generation %} block


class TextPart(NamedTuple):
    """A part of a conversation's text, and whether the model learns to generate it."""

    text: str
    learned: bool


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template; `tokens` are the variables for special tokens (`bos_token`, `eos_token` …). Conversations with tools
    are rendered by `tool_use`, if there is one.

    Raises ValueError for a template that is too long or not valid.
    """

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    tool_use: str | None = None

    def __post_init__(self) -> None:
        if len(self.source) > LARGEST_TEMPLATE:
            raise ValueError(f"the chat template has {len(self.source):,} characters, more than any template")
        _ask({"source": self.source})

    @classmethod
    def of(cls, config: Mapping[str, Any], tokens: Mapping[str, str]) -> ChatTemplate:
        """Return the template in a tokenizer's configuration. Raises ValueError if there is none."""
        template, named = config.get("chat_template"), dict[str, Any]()
        if isinstance(template, list):
            named = {str(item.get("name")): item.get("template") for item in template if isinstance(item, dict)}
            template = named.get("default", next(iter(named.values()), None))
        if not isinstance(template, str):
            raise ValueError("this tokenizer has no chat template; put a chat_template.jinja beside its tokenizer.json")
        tools = named.get("tool_use")
        return cls(
            template,
            {f"{role}_token": token for role, token in tokens.items()},
            tools if isinstance(tools, str) and tools != template else None,
        )

    def mentions(self, name: str) -> bool:
        """Whether the template has a place for a variable or a key."""
        return any(re.search(rf"\b{name}\b", source) for source in (self.source, self.tool_use or ""))

    def render(self, messages: Sequence[Mapping[str, Any]], prompt: bool = False, **values: Any) -> str:
        """Render a conversation as text; with `prompt` the text ends where the model's reply begins.

        Raises ValueError if the template refuses, fails, or exceeds its limits.
        """
        return self._run(messages, prompt, values).replace(OPENED, "").replace(CLOSED, "")

    def _run(self, messages: Sequence[Mapping[str, Any]], prompt: bool, values: Mapping[str, Any]) -> str:
        own = {"messages": list(messages), "add_generation_prompt": prompt, "tools": None, "documents": None}
        source = self.tool_use if values.get("tools") and self.tool_use else self.source
        return _ask({"source": source, "values": {**self.tokens, **own, **values}})

    def parts(self, messages: Sequence[Mapping[str, Any]], **values: Any) -> list[TextPart]:
        """Split a conversation's text into parts: the assistant's turns are learned, everything else is only read.

        If the template marks turns by {% generation %}, these are learned. Otherwise an assistant's turn is what its text
        adds to the prompt before it. A template may render a turn differently when more turns follow (Qwen 3 leaves
        earlier thoughts out). Such a turn is not what the model should generate, so it is only read; each turn that
        appears in the text exactly as in its own prompt and reply is learned, the last one above all.

        Raises ValueError if no turn is learned.
        """
        text, turns = (
            self._run(messages, False, values),
            [i for i, m in enumerate(messages) if m.get("role") == "assistant"],
        )
        counts = [messages[i].get("weight") != 0 for i in turns]
        if OPENED in text:
            pieces = text.replace(CLOSED, OPENED).split(OPENED)
            if not all(counts) and len(pieces) // 2 != len(turns):
                raise ValueError("some messages have the weight 0, and the chat template marks another number of turns")
            return [
                TextPart(piece, bool(i % 2) and (all(counts) or counts[i // 2]))
                for i, piece in enumerate(pieces)
                if piece
            ]
        parts, at = list[TextPart](), 0
        for i, learned in zip(turns, counts, strict=True):
            before, after = self.render(messages[:i], prompt=True, **values), self.render(messages[: i + 1], **values)
            if at <= len(before) and after.startswith(before) and text.startswith(after):
                parts += [TextPart(text[at : len(before)], False), TextPart(text[len(before) : len(after)], learned)]
                at = len(after)
        if turns and not parts:
            raise ValueError(
                f"the chat template renders message {turns[-1]} of a conversation differently when more messages follow, or "
                "not where the model's reply begins, so the assistant's text can't be found; "
                "end the conversation there, or mark the text in the template by {% generation %}"
            )
        return [part for part in (*parts, TextPart(text[at:], False)) if part.text]


def _ask(request: dict[str, Any]) -> str:
    """Run a template in the child process."""
    from .process import CHILD

    return CHILD.ask(request)
