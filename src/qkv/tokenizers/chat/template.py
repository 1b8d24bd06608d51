"""Chat templates: Jinja templates that format a conversation as one text, run in a sandbox.

A template is a program that comes with a model. It runs in a separate process (process.py) with access to nothing but its
inputs, and with limits on time and memory (sandbox.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .process import CHILD
from .sandbox import CLOSED, OPENED

LARGEST_TEMPLATE = 256 << 10  # characters


class Said(NamedTuple):
    """A stretch of a conversation's text, and whether the model is to learn to say it."""

    text: str
    learned: bool


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template; `tokens` are those that it may name (`bos_token`, `eos_token` …).

    Raises ValueError for one that is too long or no template.
    """

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.source) > LARGEST_TEMPLATE:
            raise ValueError(f"the chat template has {len(self.source):,} characters, more than any template")
        CHILD.ask({"source": self.source})

    @classmethod
    def of(cls, config: Mapping[str, Any], tokens: Mapping[str, str]) -> ChatTemplate:
        """The template in a tokenizer's configuration. Raises ValueError where there is none."""
        found = config.get("chat_template")
        if isinstance(found, list):
            named = {item.get("name"): item.get("template") for item in found if isinstance(item, dict)}
            found = named.get("default", next(iter(named.values()), None))
        if not isinstance(found, str):
            raise ValueError("this tokenizer has no chat template; put a chat_template.jinja beside its tokenizer.json")
        return cls(found, {f"{role}_token": token for role, token in tokens.items()})

    def render(self, messages: Sequence[Mapping[str, Any]], prompt: bool = False, **values: Any) -> str:
        """The text of a conversation; `prompt` ends it where the model is to answer.

        Raises ValueError in one sentence where the template refuses, fails, or takes more than it may.
        """
        return self._run(messages, prompt, values).replace(OPENED, "").replace(CLOSED, "")

    def _run(self, messages: Sequence[Mapping[str, Any]], prompt: bool, values: Mapping[str, Any]) -> str:
        given = {**self.tokens, "messages": list(messages), "add_generation_prompt": prompt, **values}
        return CHILD.ask({"source": self.source, "values": given})

    def parts(self, messages: Sequence[Mapping[str, Any]]) -> list[Said]:
        """A conversation in stretches: what the assistant says is to be learned, everything else is read.

        Where the template marks it by {% generation %}, that is it. Else an assistant's turn is what the text has more
        than the one that ends where the model is to answer. A template may write a turn in another way once more follow
        (Qwen 3 leaves earlier thoughts out). Such a turn is not what the model is to say, so it is only read: what is
        learned is each turn that the text has exactly as the model would be asked for it, the last one above all.

        Raises ValueError where that is none.
        """
        whole = self._run(messages, False, {})
        if OPENED in whole:
            pieces = whole.replace(CLOSED, OPENED).split(OPENED)
            return [Said(piece, bool(i % 2)) for i, piece in enumerate(pieces) if piece]
        said, at, turns = [], 0, [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
        for i in turns:
            before, after = self.render(messages[:i], prompt=True), self.render(messages[: i + 1])
            if at <= len(before) and after.startswith(before) and whole.startswith(after):
                said += [Said(whole[at : len(before)], False), Said(whole[len(before) : len(after)], True)]
                at = len(after)
        if turns and not said:
            raise ValueError(
                f"the chat template writes message {turns[-1]} of a conversation in another way once more follow, or "
                "elsewhere than where it has the model answer, so what the assistant said can't be told from the rest; "
                "end the conversation there, or mark it in the template by {% generation %}"
            )
        return [part for part in (*said, Said(whole[at:], False)) if part.text]
