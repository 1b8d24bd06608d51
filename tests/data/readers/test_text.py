from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.files.compressed import open_bytes
from qkv.data.readers.jsonl import JsonLines
from qkv.data.readers.text import Text
from qkv.data.source import SPLITS, Split, Table


def texts(spec: Text | JsonLines, split: Split = "train") -> list[str]:
    return [example["text"] for example in spec.examples(split, shuffle=False)]


def test_documents_are_files_lines_or_blocks(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a\nb\n\nc\n")
    given_: dict[str, Any] = {"path": str(path), "validation_path": str(path), "test_path": str(path)}
    assert texts(Text(**given_)) == ["a\nb\n\nc\n"]
    assert texts(Text(**given_, documents="line")) == ["a", "b", "c"]
    assert texts(Text(**given_, documents="block")) == ["a\nb", "c"]


def test_folders_are_read_by_suffix_also_compressed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub/b.txt.gz").write_bytes(gzip.compress(b"b"))
    (tmp_path / "c.md").write_text("c")
    (tmp_path / "empty.txt").touch()
    given_: dict[str, Any] = {"validation_path": str(tmp_path), "test_path": str(tmp_path)}
    assert texts(Text(path=str(tmp_path), **given_)) == ["a", "b"]
    assert texts(Text(path=str(tmp_path), suffixes=(".md",), **given_)) == ["c"]
    assert texts(Text(path=(str(tmp_path / "c.md"), str(tmp_path / "sub")), **given_)) == ["c", "b"]
    (tmp_path / "__MACOSX").mkdir()
    for left in ("._a.txt", "__MACOSX/._a.txt", "__MACOSX/d.txt", ".hidden.txt"):
        (tmp_path / left).write_text("left by a system")
    assert texts(Text(path=str(tmp_path), **given_)) == ["a", "b"]
    with pytest.raises(ValueError, match=r"holds no file with the suffix \.rst"):
        Text(path=str(tmp_path), suffixes=(".rst",)).table("train")
    with pytest.raises(ValueError, match="there is no file or folder"):
        Text(path=str(tmp_path / "nowhere")).table("train")
    with pytest.raises(ValueError, match=r"no training data: give data\.path"):
        Text().table("train")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.html",
            "<!DOCTYPE html><p>Dear all",
            "a.html (HTML) read as .*; `pandoc -f html -t plain .*a.html -o",
        ),
        ("a.txt", "\ufeff<html><p>Dear all", "a.txt (HTML) read as"),
        ("a.htm", "Dear all", "a.htm (HTML) read as"),
        ("a.txt.gz", "<?xml version='1.0'?><text>Dear all", "a.txt.gz (XML) read as"),
        ("a.svg", "<svg xmlns=''><text>Dear", "a.svg (an SVG picture) read as"),
        ("a.txt", '{"cells": [], "nbformat": 4}', r"a.txt (a Jupyter notebook) read as.*nbconvert --to markdown"),
        ("a.csv", "text\nDear all", "a.csv (a table) read as"),
        ("a.txt", "x < 5 and <b>so</b> on", ""),
        ("a.txt", '{"cells": "of the body"}', ""),
        ("a.md", "# <b>Dear</b>", ""),
    ],
)
def test_marks_around_texts_that_are_read_with_them_are_told(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    data = ((content + "\n") * 3).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    given_: dict[str, Any] = {"path": str(tmp_path / name), "validation_path": str(tmp_path / name)}
    notes = [note for note in Text(test_path=given_["path"], **given_).notes() if "read as running" in note]
    assert len(notes) == bool(said)
    assert re.match(said.replace("(", r"\(").replace(")", r"\)"), "".join(notes))


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


@given(st.lists(st.text("aé…𝔸\n", max_size=30), min_size=1, max_size=4), st.floats(0.05, 0.9))
def test_shares_split_text_by_position_between_characters(parts: list[str], share: float) -> None:
    files = [part + "x" for part in parts]
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.txt" for i in range(len(files))]
        for path, text in zip(paths, files, strict=True):
            path.write_bytes(text.encode())
        whole = "".join(files)
        spec = Text(path=tuple(map(str, paths)), shares=(share, 1 - share))
        if int(len(whole.encode()) * round(share, 9)) > 0:
            found = ["".join(_read(spec.open(split))) for split in SPLITS]
            assert found[0] + found[1] == whole and found[2] == found[1]
            off = len(found[0].encode()) - int(len(whole.encode()) * round(share, 9))
            assert 0 <= off <= 3  # up to the end of the character that the cut fell into


def _read(table: Table) -> Iterator[str]:
    """The texts of a table; what is blank is skipped as an example, but has its place in the text."""
    for document in table._tables:  # type: ignore[attr-defined]
        for i in range(len(document)):
            data = open_bytes(document.path)
            yield data[document._cut(data, i) : document._cut(data, i + 1)].decode()


def test_three_shares_of_a_file_in_pieces(tmp_path: Path) -> None:
    lines = [f"line {i}\n" for i in range(3000)]
    (tmp_path / "a.txt").write_text("".join(lines))
    spec = Text(path=str(tmp_path / "a.txt"), shares=(0.8, 0.1, 0.1))
    assert spec.notes() == () and len(spec.table("train")) > 10
    found = [list(spec.examples(split, shuffle=False)) for split in SPLITS]
    assert "".join(example["text"] for split in found for example in split) == "".join(lines)
    assert [example.get("piece") for example in found[0][:2]] == ["first", "middle"]
    assert {example.get("piece") for example in found[1]} == {"middle"}
    assert found[2][-1]["piece"] == "last" and found[2][0].get("piece") == "middle"
    by_line = Text(path=str(tmp_path / "a.txt"), shares=(0.5, 0.25), documents="line")
    assert by_line.notes() == ("validation and test are the same text",)
    assert texts(by_line) == [line.strip() for line in lines[:1500]]
    assert texts(by_line, "test") == texts(by_line, "validation") == [line.strip() for line in lines[1500:2250]]


def test_shares_that_are_none(tmp_path: Path) -> None:
    for shares in ([1.0], [0.9, 0.2], [0.5, 0.0], [0.2, 0.2, 0.2, 0.2]):
        with pytest.raises(ValueError, match="shares are two or three numbers above 0"):
            Text.from_dict({"path": "a", "shares": shares})
    with pytest.raises(ValueError, match="not both"):
        Text.from_dict({"path": "a", "shares": [0.9, 0.1], "test_path": "b"})
    (tmp_path / "a.txt").write_text("ab")
    with pytest.raises(ValueError, match=r"too little text there for a share of 0\.1 for train"):
        Text(path=str(tmp_path / "a.txt"), shares=(0.1, 0.9)).table("train")


def test_running_text_of_whole_files_is_not_read_to_look_for_what_is_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "validation"):
        (tmp_path / f"{name}.txt").write_text("the same line\n" * 3)
    given_: dict[str, Any] = {
        "path": str(tmp_path / "train.txt"),
        "validation_path": str(tmp_path / "validation.txt"),
        "test_path": str(tmp_path / "validation.txt"),
    }
    lines = Text(**given_, documents="line").notes()
    assert lines[0] == "3 of 3 validation examples share their first text with training examples"
    monkeypatch.setattr("qkv.data.holdout._keys", lambda *_: pytest.fail("the text was read"))
    assert Text(**given_).notes() == ()
