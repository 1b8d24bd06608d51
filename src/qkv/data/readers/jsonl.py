"""JSON Lines for language models: texts, prompts with answers, or chat conversations."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ...tokenizers.chat.conversations import check_messages
from ..files.json_lines import json_field, json_line, json_value
from ..files.lines import Lines
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table
from .parallel_text import pair


class JsonLines(FilePerSplit, kind="jsonl"):
    """One JSON object a line, with a `text`; or, when both are named, with a `prompt` and its `answer`; or with `messages`.

    A prompt and its answer come as a pair: a decoder-only model is trained on the answer alone, given the prompt. Messages
    are a list of objects with a `role` and a `content`; they become one text by the tokenizer's chat template, and a
    model is trained on what the assistant says.
    """

    expects: ClassVar[str] = "a JSONL file"

    text: str = "text"
    prompt: str | None = None
    answer: str | None = None
    messages: str | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.prompt is None) != (self.answer is None):
            raise ValueError("prompt and answer are given together, or neither")
        if self.prompt is not None and self.messages is not None:
            raise ValueError("give prompt and answer, or messages, not both")
        return self

    def open(self, split: Split) -> Table:
        return _JsonTable(self.lines(self.paths(split)[0]), self)


class _JsonTable:
    def __init__(self, lines: Lines, spec: JsonLines) -> None:
        self._lines, self._spec = lines, spec

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, i: int) -> Example | Skipped:
        record, spec = json_line(self._lines, i), self._spec
        if isinstance(record, Skipped):
            return record
        if spec.messages is not None:
            where = f"{str(self._lines.path)!r}, line {i + 1:,}"
            return _conversation(json_value(record, spec.messages), spec.messages, where)
        names = [spec.text] if spec.prompt is None or spec.answer is None else [spec.prompt, spec.answer]
        found = [json_field(record, name) for name in names]
        if any(text is None for text in found):
            missing = names[found.index(None)]
            return Skipped(f"without a text {missing!r}")
        texts = [text for text in found if text is not None]
        if len(texts) == 2:
            return pair(texts[0], texts[1])
        return {"text": texts[0]} if texts[0].strip() else Skipped("empty")


def _conversation(value: Any, name: str, where: str) -> Example | Skipped:
    if value is None:
        return Skipped(f"without {name!r}")
    try:
        messages = check_messages(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    text = "\n".join(message["content"] for message in messages)
    return {"text": text, "messages": json.dumps(messages, ensure_ascii=False), "where": where}
