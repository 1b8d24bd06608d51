from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from qkv.data.sources import SPLITS, Skipped, Split
from qkv.data.text import JsonLines, Text


def texts(spec: Text | JsonLines, split: Split = "train") -> list[str]:
    return [example["text"] for example in spec.examples(split, shuffle=False)]


def test_documents_are_files_lines_or_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n\nc\n")
    given: dict[str, Any] = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    assert texts(Text(**given)) == ["a\nb\n\nc\n"]
    assert texts(Text(**given, documents="line")) == ["a", "b", "c"]
    assert texts(Text(**given, documents="block")) == ["a\nb", "c"]


def test_folders_are_read_by_suffix_also_compressed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub/b.txt.gz").write_bytes(gzip.compress(b"b"))
    (tmp_path / "c.md").write_text("c")
    (tmp_path / "empty.txt").touch()
    given: dict[str, Any] = {"validation_path": str(tmp_path), "test_path": str(tmp_path)}
    assert texts(Text(path=str(tmp_path), **given)) == ["a", "b"]
    assert texts(Text(path=str(tmp_path), suffixes=(".md",), **given)) == ["c"]
    assert texts(Text(path=(str(tmp_path / "c.md"), str(tmp_path / "sub")), **given)) == ["c", "b"]
    with pytest.raises(ValueError, match=r"holds no file with the suffix \.rst"):
        Text(path=str(tmp_path), suffixes=(".rst",)).table("train")
    with pytest.raises(ValueError, match="there is no file or folder"):
        Text(path=str(tmp_path / "nowhere")).table("train")
    with pytest.raises(ValueError, match="no training data: give path"):
        Text().table("train")


def test_few_files_hold_out_pieces_and_many_hold_out_files(tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    big.write_text("".join(f"line {i}\n" for i in range(60_000)))
    spec = Text(path=str(big))
    parts = {split: set(texts(spec, split)) for split in SPLITS}
    assert len(parts["validation"]) == len(parts["test"]) == 2 and len(parts["train"]) > 90
    assert sum(len(text) for part in parts.values() for text in part) == big.stat().st_size
    many = tmp_path / "many"
    many.mkdir()
    for i in range(100):
        (many / f"{i}.txt").write_text(f"{i}: " + "words and words\n" * 8000)
    names = {split: {t.partition(":")[0] for t in texts(Text(path=str(many)), split) if ":" in t} for split in SPLITS}
    assert len(names["validation"]) == len(names["test"]) == 2 and len(names["train"]) == 96


def test_jsonl_with_text_or_prompt_and_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "a", "q": "1+1?", "a": {"short": "2"}}, {"text": " ", "q": "", "a": {"short": "x"}}, {"q": "?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given: dict[str, Any] = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    plain = JsonLines(**given).table("train")
    assert [plain[i] for i in range(3)] == [{"text": "a"}, Skipped("empty"), Skipped("without a text 'text'")]
    asked = JsonLines(**given, prompt="q", answer="a.short").table("train")
    assert [asked[i] for i in range(3)] == [
        {"source": "1+1?", "target": "2"}, Skipped("with one side empty"), Skipped("without a text 'a.short'")
    ]  # fmt: skip
    with pytest.raises(ValueError, match="prompt and answer are given together"):
        JsonLines.from_dict({"prompt": "q"})
