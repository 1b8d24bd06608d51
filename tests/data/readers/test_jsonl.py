"""JSON Lines with texts, prompts and answers, or conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.readers.jsonl import JsonLines
from qkv.data.source import Skipped


def test_jsonl_with_text_or_prompt_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "a", "q": "1+1?", "a": {"short": "2"}}, {"text": " ", "q": "", "a": {"short": "x"}}, {"q": "?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given_: dict[str, Any] = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    plain = JsonLines(**given_).table("train")
    assert [plain[i] for i in range(3)] == [{"text": "a"}, Skipped("empty"), Skipped("without a text 'text'")]
    asked = JsonLines(**given_, prompt="q", answer="a.short").table("train")
    assert [asked[i] for i in range(3)] == [
        {"source": "1+1?", "target": "2"}, Skipped("with one side empty"), Skipped("without a text 'a.short'")
    ]  # fmt: skip
    with pytest.raises(ValueError, match="give both prompt and answer, or neither"):
        JsonLines.from_dict({"prompt": "q"})


def test_jsonl_with_conversations(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"chat": {"turns": said}}, {"chat": 3})) + "\n")
    spec = JsonLines(path=str(path), validation_path=str(path), test_path=str(path), messages="chat.turns")
    table = spec.table("train")
    first = table[0]
    assert isinstance(first, dict) and json.loads(first["messages"]) == said
    assert (first["text"], first["where"]) == ("hi\nhello", f"{str(path)!r}, line 1")
    assert [table[1], table[2]] == [Skipped("without 'chat.turns'"), Skipped("empty")]
    assert list(spec.texts("validation")) == ["hi\nhello"]
    path.write_text('{"messages": [{"role": "user"}]}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl', line 1: message 0 needs a role and a content"):
        spec.replace(messages="messages").table("train")[0]
    with pytest.raises(ValueError, match="give prompt and answer, or messages"):
        JsonLines.from_dict({"prompt": "q", "answer": "a", "messages": "m"})


def test_words_with_a_tag_for_each(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows: list[dict[str, Any]] = [
        {"tokens": ["EU", "slept"], "ner": {"tags": ["B-ORG", "O"]}},
        {"tokens": ["so"], "ner": {"tags": [3]}},
        {"tokens": []},
        {"tokens": [], "ner": {"tags": []}},
        {"tokens": ["a", "b"], "ner": {"tags": ["O"]}},
        {"tokens": "a b", "ner": {"tags": ["O", "O"]}},
        {"tokens": ["a"], "ner": {"tags": [None]}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given_: dict[str, Any] = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    table = JsonLines(**given_, word="tokens", tag="ner.tags").table("train")
    where = f"{str(path)!r}, line "
    assert [table[i] for i in range(4)] == [
        {"text": "EU slept", "words": ["EU", "slept"], "tags": ["B-ORG", "O"], "where": f"{where}1"},
        {"text": "so", "words": ["so"], "tags": ["3"], "where": f"{where}2"},
        Skipped("without 'ner.tags'"),
        Skipped("without words"),
    ]
    for i, said in (
        (4, "'tokens' has 2 words, and 'ner.tags' has 1 tags"),
        (5, "must be a list of words"),
        (6, "must be a list of tags"),
    ):
        with pytest.raises(ValueError, match=f"line {i + 1}: .*{said}"):
            table[i]
    numbers = {"id": [7, 8], "tokens": ["a", "b"], "labels": [0, 1], "pos": ["X", "Y"]}
    path.write_text(json.dumps(numbers) + '\n{"tokens": ["a"], "tags": [["B"]]}\n')
    (first, second), how = JsonLines(**given_).table("train"), "data.word=tokens data.tag=labels"
    assert first == f"without a text 'text', but with lists of words and tags, which {how} reads"
    assert second == "without a text 'text'"
    for wrong, said in (
        ({"word": "tokens"}, "give both word and tag"),
        (
            {"word": "a", "tag": "b", "messages": "c"},
            "give word and tag, or prompt and answer, or messages, not several",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            JsonLines.from_dict(wrong)
