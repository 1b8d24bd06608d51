"""JSON Lines: texts, prompts with answers, or conversations for language models, and words with their tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import model_validator

from ...core.spec import brief
from ..classes import class_name
from ..files.inside import inside
from ..files.json_lines import halved, json_value
from ..files.text_files import NamedRecords
from ..source import Example, Skipped, Split, Table
from ..tokenizers.chat.messages import check_messages, check_tools, files_in, listed, messages_in, text_of
from .parallel_text import record_example

TAG_FIELDS = ("ner_tags", "tags", "labels", "ner", "entities", "pos_tags", "upos")
"""Usual names of lists of tags; the first that fits wins."""


class JsonLines(NamedRecords, kind="jsonl"):
    """One JSON object per line, a `.json` file with a list of them, or a row of a `.parquet` file, with a `text`; or, if
    both fields are set, with a `prompt` and its `answer`; or `messages`.

    A prompt and its answer form a pair: a decoder-only model is trained on the answer alone, given the prompt. Messages
    are a list of objects with a `role` and a `content` as in OpenAI's format, in which an assistant may call tools. The
    tokenizer's chat template turns them into one text, and a model is trained on the assistant's messages. Without the
    field `messages`, ShareGPT's `conversations` and Alpaca's `instruction`, `input` and `output` are read.

    tools:     the field with the descriptions of the tools that the assistant may call; null leaves them out.
    word, tag: the fields with a sentence's list of words and list of tags, such as `tokens` and `ner_tags`.
    """

    expects: ClassVar[str] = "a JSONL or Parquet file"

    text: str = "text"
    prompt: str | None = None
    answer: str | None = None
    messages: str | None = None
    tools: str | None = "tools"
    word: str | None = None
    tag: str | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.prompt is None) != (self.answer is None):
            raise ValueError("give both prompt and answer, or neither")
        if self.prompt is not None and self.messages is not None:
            raise ValueError("give prompt and answer, or messages, not both")
        if (self.word is None) != (self.tag is None):
            raise ValueError("give both word and tag, the fields with the lists of words and tags, or neither")
        if self.word is not None and (self.prompt is not None or self.messages is not None):
            raise ValueError("give word and tag, or prompt and answer, or messages, not several of these")
        return self

    def open(self, split: Split) -> Table:
        path = self.paths(split)[0]
        return self.records(path, partial(self.example, folder=path.parent))

    def example(self, record: object, where: str, folder: Path | None = None) -> Example | Skipped:
        """The example in a line's JSON value, or why it is skipped. Media of messages are files in `folder`."""
        if self.messages is not None:
            value = messages_in(record, self.messages)
            tools = None if self.tools is None else json_value(record, self.tools)
            return Skipped(f"without {self.messages!r}") if value is None else conversation(value, where, tools, folder)
        if self.word is not None and self.tag is not None:
            return _tagged(record, self.word, self.tag, where)
        if self.prompt is not None and self.answer is not None:
            return record_example(record, (self.prompt, self.answer))
        found = record_example(record, (self.text,))
        if isinstance(found, Skipped) and (fields := _tag_fields(record)):
            word, tag = fields
            return Skipped(f"{found}, but with lists of words and tags, which data.word={word} data.tag={tag} reads")
        return found


def _tag_fields(record: object) -> tuple[str, str] | None:
    """The fields of a record with a list of words and a list of as many tags, of which `TAG_FIELDS` come first."""
    lists = {name: one for name, one in record.items() if isinstance(one, list)} if isinstance(record, dict) else {}
    word = next((name for name, one in lists.items() if one and all(isinstance(each, str) for each in one)), None)
    if word is None:
        return None
    alike = (name for name, one in lists.items() if name != word and len(one) == len(lists[word]))
    tags = [name for name in alike if all(class_name(each) is not None for each in lists[name])]
    named = [name for name in TAG_FIELDS if name in tags] or tags
    return (word, named[0]) if named else None


def _tagged(record: object, word: str, tag: str, where: str) -> Example | Skipped:
    """Return the example for a record with a list of words and a list of tags. Raises ValueError, with `where` in the
    message, if the lists differ in length or have elements of other types."""
    words, tags = json_value(record, word), json_value(record, tag)
    if words is None or tags is None:
        return Skipped(f"without {word if words is None else tag!r}")
    if not isinstance(words, list) or not all(isinstance(one, str) for one in words):
        raise ValueError(f"{where}: {brief(word)} must be a list of words, not {brief(words)}")
    names = [name for one in tags if (name := class_name(one)) is not None] if isinstance(tags, list) else []
    if not isinstance(tags, list) or len(names) < len(tags):
        raise ValueError(f"{where}: {brief(tag)} must be a list of tags (texts or whole numbers), not {brief(tags)}")
    if len(words) != len(names):
        raise ValueError(f"{where}: {brief(word)} has {len(words)} words, and {brief(tag)} has {len(names)} tags")
    return (
        {"text": " ".join(words), "words": words, "tags": names, "where": where} if words else Skipped("without words")
    )


def conversation(messages: object, where: str, tools: object = None, folder: Path | None = None) -> Example:
    """The example of a conversation, whose media are files in `folder` or `data:` addresses. Raises ValueError, naming its
    place, if the messages or the tools are not valid, and for a file that is not there."""
    try:
        checked, described = check_messages(listed(messages)), check_tools(tools)
        checked = with_paths(checked, folder or Path())
        text, said = "\n".join(map(text_of, checked)), json.dumps(checked, ensure_ascii=False)
        said.encode()
        more = {} if described is None else {"tools": json.dumps(described, ensure_ascii=False)}
        if files := files_in(checked):
            more["files"] = json.dumps(files)
    except UnicodeEncodeError as error:
        raise halved(error, f"{where}: a message") from None
    except (ValueError, TypeError, RecursionError) as error:  # TypeError: of values that JSON doesn't have
        raise ValueError(f"{where}: {error}") from None
    return {"text": text, "messages": said, **more, "where": where}


def with_paths(messages: Sequence[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Checked messages with the paths of their media, which lie in a folder. Raises ValueError for a file that is outside
    of it or not there."""
    return [_with_paths(message, f"message {i}", folder) for i, message in enumerate(messages)]


def _with_paths(message: dict[str, Any], where: str, folder: Path) -> dict[str, Any]:
    if not isinstance(message.get("content"), list):
        return message
    parts = []
    for i, part in enumerate(message["content"]):
        kind, place = part["type"], f"{where}, part {i},"
        file = part.get(kind)
        if kind in ("image", "sound", "video"):
            if not isinstance(file, str):
                raise ValueError(f'{place} names no file; give its path: {{"type": "{kind}", "path": "…"}}')
            if not file.startswith("data:"):
                path = inside(folder, file, place)
                if not path.is_file():
                    raise ValueError(f"{place} names the file {brief(file)}, and there is none")
                part = {**part, kind: str(path)}
        parts.append(part)
    return {**message, "content": parts}
