from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from data_stand_in import Characters
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.batch import IGNORE
from qkv.data.batching import packing
from qkv.data.batching.encoded import Encoded
from qkv.data.batching.encoding import CharacterLimit, Reader, encode_function
from qkv.data.batching.ragged import Ragged
from qkv.data.batching.rows import Limits, Rows, conversation_rows, pair_rows, prompt_rows, running_rows, window_rows
from qkv.data.source import Counts, Example, Skipped
from qkv.data.tokenizers.protocol import Encoder, PairFrame

TEXTS = st.lists(st.text("abc", max_size=30), max_size=12)


def spell(ids: Iterable[int]) -> str:
    return "".join({1: "^", 2: "$", IGNORE: "_"}.get(int(i)) or chr(i - 10) for i in ids)


def pair(source: str, target: str) -> Example:
    return {"source": source, "target": target}


def encoded(
    examples: Sequence[Example | Skipped | None], tokenizer: Encoder, reach: CharacterLimit | None = None
) -> Encoded:
    reader = Reader(reach, keep=True)
    found = reader.read(examples, np.arange(len(examples)), encode_function(tokenizer, None), Counts())
    assert found is not None
    return found


def made(build: Any, examples: list[Example], *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
    tokenizer = Characters(**kwargs)
    rows = build(encoded(examples, tokenizer), tokenizer, *args)
    return [(spell(inputs), spell(labels)) for inputs, labels in zip(rows.inputs, rows.labels, strict=True)]


def made_pairs(examples: list[Example], limits: Limits, counts: Counts) -> list[tuple[str, str, str]]:
    rows = pair_rows(encoded(examples, Characters()), Characters(), limits, counts)
    assert rows.source is not None
    return [tuple(map(spell, sides)) for sides in zip(rows.source, rows.inputs, rows.labels, strict=True)]  # type: ignore[misc]


def test_sequence_to_sequence() -> None:
    assert made_pairs([pair("ab", "xyz")], Limits(9, "skip"), Counts()) == [("ab$", "^xyz", "xyz$")]


def test_over_long_pairs_are_skipped_or_cut_and_counted() -> None:
    examples = [pair("abcd", "x"), pair("a", "vwxyz"), pair("abc", "xyz")]
    counts = Counts()
    assert made_pairs(examples, Limits(4, "skip"), counts) == [("abc$", "^xyz", "xyz$")]
    assert counts.skipped == {"over-long": 2} and counts.cut == 0
    counts = Counts()
    assert made_pairs(examples, Limits(4, "cut"), counts) == [
        ("abc$", "^x", "x$"), ("a$", "^vwx", "vwxy"), ("abc$", "^xyz", "xyz$")
    ]  # fmt: skip
    assert counts.cut == 2 and not counts.skipped


def test_a_prompt_and_its_answer_in_one_sequence() -> None:
    assert made(prompt_rows, [pair("ab", "xy")], Limits(9, "skip"), Counts()) == [("^ab$xy", "___xy$")]
    assert made(prompt_rows, [pair("ab", "xy")], Limits(9, "skip"), Counts(), bos=False) == [("ab$xy", "__xy$")]
    assert made(prompt_rows, [pair("ab", "xy")], Limits(5, "cut"), Counts()) == [("^ab$x", "___xy")]
    counts = Counts()
    assert made(prompt_rows, [pair("abcd", "xy")], Limits(5, "cut"), counts) == []
    assert counts.skipped == {"with a prompt that fills the context": 1}


def test_running_text_is_shifted_once_and_no_label_crosses_documents() -> None:
    examples: list[Example] = [{"text": "abc"}, {"text": "de"}]
    assert made(running_rows, examples, 99, None) == [("^abc$^de$", "abc$_de$_")]
    assert made(running_rows, examples, 4, None) == [("^abc", "abc$"), ("$^de", "_de$")]
    assert made(running_rows, examples, 99, None, bos=False, eos=False) == [("abcde", "bc_e_")]


def test_pieces_of_a_document_begin_and_end_once() -> None:
    examples: list[Example] = [{"text": t, "piece": p} for t, p in (("ab", "first"), ("cd", "middle"), ("ef", "last"))]
    assert made(running_rows, examples, 99, None) == [("^abcdef$", "ab_d_f$_")]


@given(TEXTS, st.integers(1, 12), st.integers(0, 99))
def test_running_rows_are_the_text_in_order(texts: list[str], context: int, seed: int) -> None:
    examples: list[Example] = [{"text": text} for text in texts] or [{"text": ""}]
    for random in (None, Random(seed)):
        found = made(running_rows, examples, context, random)
        assert all(len(inputs) == len(labels) <= context for inputs, labels in found)
        whole = "".join(f"^{text}$" for text in texts or [""])
        if context > 1:  # a row of a lone end predicts nothing and is left out
            assert "".join(inputs for inputs, _ in found).rstrip("$") == whole.rstrip("$")
        assert sum(label != "_" for _, labels in found for label in labels) == sum(len(t) + 1 for t in texts or [""])


@given(TEXTS, st.integers(1, 12), st.integers(0, 99))
def test_windows_are_full_and_every_label_is_the_next_token(texts: list[str], context: int, seed: int) -> None:
    examples: list[Example] = [{"text": text} for text in texts] or [{"text": ""}]
    stream = "".join(f"^{text}$" for text in texts or [""])
    in_order = made(window_rows, examples, context, None)
    assert "".join(inputs for inputs, _ in in_order) == stream[:-1]
    assert "".join(labels for _, labels in in_order) == stream[1:]
    drawn = made(window_rows, examples, context, Random(seed))
    inputs, labels = ("".join(side) for side in zip(*drawn, strict=True))
    places = [at for at in range(len(stream)) if stream.startswith(inputs, at)]  # several if texts repeat
    places = [at for at in places if stream[at + 1 : at + 1 + len(labels)] == labels]
    assert places
    if len(stream) > context:
        assert all(len(row) == context for row, _ in drawn)
        # the first window begins within the first row, and no more windows would fit
        assert any(at < context and len(stream) - 1 - at - len(inputs) < context for at in places)


def test_windows_begin_elsewhere_each_time_and_no_label_crosses_what_is_held_out() -> None:
    examples: list[Example] = [{"text": "abcdefghijklmnopqrst"}]
    assert len({made(window_rows, examples, 5, Random(i))[0][0] for i in range(40)}) == 5
    torn = encoded([{"text": "ab", "piece": "first"}, None, {"text": "ef", "piece": "last"}], Characters())
    rows = window_rows(torn, Characters(), 9, None)
    assert (spell(rows.inputs[0]), spell(rows.labels[0])) == ("^abef", "ab_f$")


@given(TEXTS, st.integers(1, 12))
def test_packed_rows_hold_every_label_once(texts: list[str], context: int) -> None:
    tokenizer = Characters()
    examples: list[Example] = [{"text": text} for text in texts] or [{"text": ""}]
    found = packing.packed_rows(encoded(examples, tokenizer), tokenizer, context)
    parts = []
    for inputs, labels, documents in zip(found.inputs, found.labels, found.documents, strict=True):
        assert sum(documents) == len(inputs) == len(labels) <= context
        at = 0
        for length in documents:
            parts.append((spell(inputs[at : at + length]), spell(labels[at : at + length])))
            at += length
    expected = []
    for text in texts or [""]:
        whole = f"^{text}", f"{text}$"
        expected += [tuple(side[i : i + context] for side in whole) for i in range(0, len(whole[0]), context)]
    assert sorted(parts) == sorted(expected)


def test_packed_pairs_stand_in_the_same_order_on_both_sides() -> None:
    tokenizer = Characters()
    examples = [pair("abc", "x"), pair("d", "yz"), pair("efgh", "w"), pair("", "")]
    rows = pair_rows(encoded(examples, tokenizer), tokenizer, Limits(8, "skip"), Counts())
    packed = packing.packed_pairs(rows, 8)
    assert packed.source is not None
    assert [spell(row) for row in packed.source] == ["efgh$d$$", "abc$"]
    assert [spell(row) for row in packed.inputs] == ["^w^yz^", "^x"]
    assert [spell(row) for row in packed.labels] == ["w$yz$$", "x$"]
    assert packed.source_documents == ((5, 2, 1), (4,)) and packed.documents == ((2, 3, 1), (2,))


def test_without_an_end_token_pairs_are_refused() -> None:
    for build in (pair_rows, prompt_rows):
        with pytest.raises(ValueError, match="end-of-sequence token"):
            made(build, [pair("a", "b")], Limits(9, "skip"), Counts(), eos=False)


def test_the_frame_of_a_loaded_model_stands_around_both_sides() -> None:
    class Framed(Characters):
        frame = PairFrame(ord("S") + 10, (ord("<") + 10,), (ord(">") + 10, 2))

    tokenizer = Framed()
    examples = [pair("ab", "xyz"), pair("", "vw")]
    rows = pair_rows(encoded(examples, tokenizer), tokenizer, Limits(9, "skip"), Counts())
    assert rows.source is not None
    found = [tuple(map(spell, sides)) for sides in zip(rows.source, rows.inputs, rows.labels, strict=True)]
    assert found == [("<ab>$", "S<xyz>", "<xyz>$"), ("<>$", "S<vw>", "<vw>$")]
    counts = Counts()
    cut = pair_rows(encoded(examples, tokenizer), tokenizer, Limits(4, "cut"), counts)
    assert cut.source is not None and counts.cut == 2
    assert [spell(ids) for side in (cut.source, cut.inputs, cut.labels) for ids in side] == [
        *("<a>$", "<>$"), *("S<xy", "S<vw"), *("<xyz", "<vw>")
    ]  # fmt: skip


def talks(*rows: str) -> Encoded:
    """Conversations, in which the assistant says the capital letters."""
    ids = Ragged.of([[ord(c) + 10 for c in row] for row in rows])
    learned = Ragged.of([[int(c.isupper()) for c in row] for row in rows])
    return Encoded(np.arange(len(rows)), (ids, learned), np.full(len(rows), 4, np.int32))


def test_of_a_conversation_only_what_the_assistant_says_counts() -> None:
    def read(rows: Rows) -> list[tuple[str, str]]:
        return [(spell(inputs), spell(labels)) for inputs, labels in zip(rows.inputs, rows.labels, strict=True)]

    found, counts = talks("abCDeFg", "abcdefghI", "x", "aB"), Counts()
    rows = conversation_rows(found, Limits(6, "skip"), counts)
    assert read(rows) == [("abCDeF", "_CD_F_"), ("a", "B")]
    assert counts.skipped == {"over-long": 1, "with a prompt that fills the context": 1}
    packed = packing.packed(rows, 8)
    assert read(packed) == [("abCDeFa", "_CD_F_B")] and packed.documents == ((6, 1),)
    counts = Counts()
    assert read(conversation_rows(found, Limits(3, "cut"), counts)) == [("abC", "_CD"), ("a", "B")]
    assert counts.cut == 2 and counts.skipped == {"with a prompt that fills the context": 2}
