"""Data sets that are made of others before a recipe reads them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import pytest
from bench.baselines import pairs, text

from bench import candidates, methods

SOURCES = ["a dog runs", "two men sit", "a cat sleeps", "a man sings", "the cars stop"]
TARGETS = ["a dogue runne", "twe menne sitte", "a catte sleppe", "a manne singe", "the carres stoppe"]


def test_a_methods_name_leaves_its_body() -> None:
    said = methods.summed_up("public int getHTMLSize2(int aKey) {return getHTMLSize2(aKey, MAX_1);}")
    assert said == ("public int _ ( int a key ) { return _ ( a key , max _ 1 ) ; }", "get html size 2")
    assert methods.summed_up("return x;") is None


def test_methods_become_two_files_of_equal_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.java"
    file.write_text("int size() {return n;}\nno method\nvoid addAll(List l) {}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["methods", str(tmp_path / "out"), str(file)])
    methods.main()
    assert (tmp_path / "out/train.name").read_text() == "size\nadd all\n"
    assert (tmp_path / "out/train.body").read_text() == "int _ ( ) { return n ; }\nvoid _ ( list l ) { }\n"


def test_candidates_are_others_of_about_the_same_length() -> None:
    texts = ["x" * (1 + i // 2) + str(i) for i in range(600)]
    drawn = candidates.as_long(texts, 3, Random(0))
    for own, others in zip(texts, drawn, strict=True):
        assert len({own, *others}) == 4
        assert max(abs(len(own) - len(other)) for other in others) <= 55
    assert drawn == candidates.as_long(texts, 3, Random(0))


def test_letters_in_common_find_translations_of_kin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, lines in (("source", SOURCES), ("target", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "made.jsonl"
    monkeypatch.setattr(sys, "argv", ["candidates", str(out), str(tmp_path / "source"), str(tmp_path / "target")])
    candidates.main()
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["answer"] for row in rows] == TARGETS and all(row["answer"] in row["choices"] for row in rows)
    assert text.letters([str(out), str(out)])["accuracy"] == 1.0


def test_what_sums_up_the_most_similar_text_and_what_stands_at_its_beginning(tmp_path: Path) -> None:
    for name, lines in (
        ("source", SOURCES),
        ("target", TARGETS),
        ("asked", ["a dog runs fast"]),
        ("truth", TARGETS[:1]),
    ):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("source", "target", "asked", "truth")]
    assert pairs.nearest(files)["rouge1"] == 100
    assert pairs.lead([*files[2:], "--words", "1"])["rouge1"] == 50
