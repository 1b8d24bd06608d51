"""Files made for reproductions: splits by length, ninths and tenths, reversed numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from qkv.data.synthetic.listops import read, value
from qkv.lab.reproduce import prepare
from qkv.lab.reproduce.prepare import CUTOFF, FIRST_OPERATOR, listops, reverse, scan, tinyshakespeare


def test_scan_is_divided_by_the_number_of_actions(tmp_path: Path) -> None:
    actions = [["I_JUMP"] * n for n in range(1, 49)]
    lines = [f"IN: jump {len(one)} OUT: {' '.join(one)}\n" for one in actions]
    (tmp_path / "train.txt").write_text("".join(lines[:22]))
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress("".join(lines[22:]).encode()))
    scan({"a": tmp_path / "train.txt", "b": tmp_path / "test.txt.gz"}, tmp_path / "out")
    lengths = {
        split: sorted(len(line.split("\t")[1].split()) for line in (tmp_path / "out" / f"{split}.tsv").open())
        for split in ("train", "validation", "test")
    }
    assert len(lengths["validation"]) == 1 and sorted(lengths["train"] + lengths["validation"]) == list(
        range(1, CUTOFF + 1)
    )
    assert lengths["test"] == list(range(CUTOFF + 1, 49))


def test_numbers_and_their_reverse(tmp_path: Path) -> None:
    reverse({}, tmp_path)
    pairs = [line.rstrip("\n").split("\t") for line in (tmp_path / "train.tsv").open()]
    assert len(pairs) == 50_000 and all(source.split() == target.split()[::-1] for source, target in pairs[:500])
    assert {len(source.split()) for source, _ in pairs} == set(range(1, 26))
    assert {word for source, _ in pairs for word in source.split()} == set(map(str, range(50)))
    test = [line.split("\t")[0].split() for line in (tmp_path / "test.tsv").open()]
    assert len(test) == 1_000 and max(map(len, test)) == 30


def test_the_last_tenth_is_for_validation(tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_text("0123456789" * 10)
    tinyshakespeare({"input.txt": tmp_path / "input.txt"}, tmp_path)
    assert (tmp_path / "train.txt").read_text() == "0123456789" * 9
    assert (tmp_path / "validation.txt").read_text() == "0123456789"


def test_lists_have_their_values_and_the_lengths_of_the_long_range_arena(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "LISTS", {"train": 150, "validation": 10, "test": 20})
    listops({}, tmp_path)
    splits = {split: (tmp_path / f"{split}.tsv").read_text().splitlines() for split in ("train", "validation", "test")}
    assert [lines.pop(0) for lines in splits.values()] == ["text\tlabel"] * 3
    assert [len(lines) for lines in splits.values()] == [150, 10, 20]
    rows = [line.split("\t") for lines in splits.values() for line in lines]
    assert len({text for text, _ in rows}) == 180
    assert all(str(value(read(text))) == label for text, label in rows)
    seen = [(text[:4], label) for text, label in rows]
    train = seen[:150]  # sorted so that the most frequent value of an operator is the last, and wins
    guesses = dict(sorted(train, key=lambda pair: (train.count(pair), -train.index(pair))))
    right = [guesses[first] == label for first, label in seen[160:]]
    assert json.loads((tmp_path / FIRST_OPERATOR).read_text()) == {"accuracy": sum(right) / 20}
    lengths = [len(text.split()) for text, _ in rows]
    assert min(lengths) > 500 and max(lengths) < 2_000
    assert 900 < sum(lengths) / 180 < 1_170  # 1,036 on average, with a standard error of 30 here
    depths = [max(_depths(text)) for text, _ in rows]
    assert max(depths) == 9  # the digits are on the tenth level


def _depths(text: str) -> list[int]:
    depths = [0]
    for token in text.split():
        depths.append(depths[-1] + (token[0] == "[") - (token == "]"))
    return depths
