"""JSON Lines for language models: texts, prompts with answers, or chat conversations."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ...tokenizers.chat.conversations import check_messages
from ..files.json_lines import json_value
from ..files.text_files import FilePerSplit
from ..source import Example, Skipped, Split, Table
from .parallel_text import record_example


class JsonLines(FilePerSplit, kind="jsonl"):
    """One JSON object per line, or a row of a `.parquet` file, with a `text`; or, if both fields are set, with a `prompt`
    and its `answer`; or `messages`.

    A prompt and its answer form a pair: a decoder-only model is trained on the answer alone, given the prompt. Messages
    are a list of objects with a `role` and a `content`; the tokenizer's chat template turns them into one text, and a
    model is trained on the assistant's messages.
    """

    expects: ClassVar[str] = "a JSONL or Parquet file"

    text: str = "text"
    prompt: str | None = None
    answer: str | None = None
    messages: str | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.prompt is None) != (self.answer is None):
            raise ValueError("give both prompt and answer, or neither")
        if self.prompt is not None and self.messages is not None:
            raise ValueError("give prompt and answer, or messages, not both")
        return self

    def open(self, split: Split) -> Table:
        return self.records(self.paths(split)[0], self.example)

    def example(self, record: Any, where: str) -> Example | Skipped:
        """The example in a line's JSON value, or why it is skipped."""
        if self.messages is not None:
            value = json_value(record, self.messages)
            return Skipped(f"without {self.messages!r}") if value is None else conversation(value, where)
        fields = (self.text,) if self.prompt is None or self.answer is None else (self.prompt, self.answer)
        return record_example(record, fields)


def conversation(messages: Any, where: str) -> Example:
    """The example of a conversation. Raises ValueError, naming its place, if the messages are not valid."""
    try:
        messages = check_messages(messages)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    text = "\n".join(message["content"] for message in messages)
    return {"text": text, "messages": json.dumps(messages, ensure_ascii=False), "where": where}
