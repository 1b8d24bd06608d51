from __future__ import annotations

from random import Random
from typing import Any

import pytest
from data_stand_in import Characters
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.batch import IGNORE
from qkv.data import rows
from qkv.data.rows import Limits, Row
from qkv.data.sources import Counts, Example

TEXTS = st.lists(st.text("abc", max_size=30), max_size=12)


def spell(ids: list[int]) -> str:
    return "".join({1: "^", 2: "$", IGNORE: "_"}.get(i) or chr(i - 10) for i in ids)


def pair(source: str, target: str) -> Example:
    return {"source": source, "target": target}


def made(build: Any, examples: list[Example], *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
    return [(spell(row.inputs), spell(row.labels)) for row in build(examples, Characters(**kwargs), *args)]


def test_sequence_to_sequence() -> None:
    (row,) = rows.pair_rows([pair("ab", "xyz")], Characters(), Limits(9, "skip"), Counts())
    assert (spell(row.source or []), spell(row.inputs), spell(row.labels)) == ("ab$", "^xyz", "xyz$")


def test_over_long_pairs_are_skipped_or_cut_and_counted() -> None:
    examples = [pair("abcd", "x"), pair("a", "vwxyz"), pair("abc", "xyz")]
    counts = Counts()
    (row,) = rows.pair_rows(examples, Characters(), Limits(4, "skip"), counts)
    assert spell(row.labels) == "xyz$" and counts.skipped == {"over-long": 2} and counts.cut == 0
    counts = Counts()
    cut = rows.pair_rows(examples, Characters(), Limits(4, "cut"), counts)
    assert [(spell(r.source or []), spell(r.inputs), spell(r.labels)) for r in cut] == [
        ("abc$", "^x", "x$"), ("a$", "^vwx", "vwxy"), ("abc$", "^xyz", "xyz$")
    ]  # fmt: skip
    assert counts.cut == 2 and not counts.skipped


@pytest.mark.parametrize("over_long", ["skip", "cut"])
@pytest.mark.parametrize("build", [rows.pair_rows, rows.prompt_rows])
def test_a_huge_line_never_reaches_the_tokenizer_whole(build: Any, over_long: Any) -> None:
    tokenizer, counts = Characters(), Counts()
    build([pair("x" * (10 << 20), "y" * (10 << 20))], tokenizer, Limits(20, over_long), counts)
    assert tokenizer.longest_seen <= 20 * 64
    assert counts.skipped.total() or counts.cut


def test_a_prompt_and_its_answer_in_one_sequence() -> None:
    assert made(rows.prompt_rows, [pair("ab", "xy")], Limits(9, "skip"), Counts()) == [("^ab$xy", "___xy$")]
    assert made(rows.prompt_rows, [pair("ab", "xy")], Limits(9, "skip"), Counts(), bos=False) == [("ab$xy", "__xy$")]
    assert made(rows.prompt_rows, [pair("ab", "xy")], Limits(5, "cut"), Counts()) == [("^ab$x", "___xy")]
    counts = Counts()
    assert made(rows.prompt_rows, [pair("abcd", "xy")], Limits(5, "cut"), counts) == []
    assert counts.skipped == {"with a prompt that fills the context": 1}


def test_running_text_is_shifted_once_and_no_label_crosses_documents() -> None:
    examples: list[Example] = [{"text": "abc"}, {"text": "de"}]
    assert made(rows.contiguous_rows, examples, 99, None) == [("^abc$^de$", "abc$_de$_")]
    assert made(rows.contiguous_rows, examples, 4, None) == [("^abc", "abc$"), ("$^de", "_de$")]
    assert made(rows.contiguous_rows, examples, 99, None, bos=False, eos=False) == [("abcde", "bc_e_")]


def test_pieces_of_a_document_begin_and_end_once() -> None:
    examples: list[Example] = [{"text": t, "piece": p} for t, p in (("ab", "first"), ("cd", "middle"), ("ef", "last"))]
    assert made(rows.contiguous_rows, examples, 99, None) == [("^abcdef$", "ab_d_f$_")]


@given(TEXTS, st.integers(1, 12), st.integers(0, 99))
def test_contiguous_rows_are_the_text_in_order(texts: list[str], context: int, seed: int) -> None:
    examples: list[Example] = [{"text": text} for text in texts]
    for random in (None, Random(seed)):
        found = rows.contiguous_rows(examples, Characters(), context, random)
        assert all(len(row.inputs) <= context for row in found)
        whole = "".join(f"^{text}$" for text in texts)
        if context > 1:  # a row of a lone end predicts nothing and is left out
            assert "".join(spell(row.inputs) for row in found).rstrip("$") == whole.rstrip("$")
        assert sum(label != IGNORE for row in found for label in row.labels) == sum(len(text) + 1 for text in texts)


@given(TEXTS, st.integers(1, 12))
def test_packed_rows_hold_every_label_once(texts: list[str], context: int) -> None:
    found = rows.packed_rows([{"text": text} for text in texts], Characters(), context)
    parts = []
    for row in found:
        assert sum(row.documents) == len(row.inputs) == len(row.labels) <= context
        at = 0
        for length in row.documents:
            parts.append((spell(row.inputs[at : at + length]), spell(row.labels[at : at + length])))
            at += length
    expected = []
    for text in texts:
        inputs, labels = f"^{text}", f"{text}$"
        expected += [(inputs[i : i + context], labels[i : i + context]) for i in range(0, len(inputs), context)]
    assert sorted(parts) == sorted(expected)


def test_a_huge_text_is_tokenized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_PART", 10)
    tokenizer = Characters()
    (row,) = rows.contiguous_rows([{"text": "a" * 95}], tokenizer, 200, None)
    assert spell(row.inputs) == "^" + "a" * 95 + "$" and tokenizer.longest_seen == 10


def test_slots_of_a_row() -> None:
    assert Row([1, 2], [2, 3], source=[4]).slots == 3


def test_without_an_end_token_pairs_are_refused() -> None:
    for build in (rows.pair_rows, rows.prompt_rows):
        with pytest.raises(ValueError, match="end-of-sequence token"):
            build([pair("a", "b")], Characters(eos=False), Limits(9, "skip"), Counts())
