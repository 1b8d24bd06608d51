"""Labels of tokens: readable for bytes, emoji and right-to-left scripts, and words found among them."""

from __future__ import annotations

import pytest

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.spec import TokenizerSpec
from qkv.look.view.labels import LONGEST, find_word, printable, token_labels, whole_words, word_ranges


def test_parts_of_a_character_are_numbered() -> None:
    tokenizer = train(TokenizerSpec.from_dict({"kind": "bpe", "vocab_size": 260}), iter(["ab"]))
    assert token_labels(tokenizer, tokenizer.encode("a é👍")) == [
        *("a", "▁", "é 1/2", "é 2/2"),
        *(f"👍 {part}/4" for part in range(1, 5)),
    ]
    assert token_labels(tokenizer, tokenizer.encode("👍")[:2]) == ["<0xF0>", "<0x9F>"]
    assert token_labels(tokenizer, tokenizer.encode("أב")) == ["أ 1/2", "أ 2/2", "ב 1/2", "ב 2/2"]


def test_control_characters_are_written_out_and_long_labels_cut_between_graphemes() -> None:
    assert printable("a\u0000b\u202e") == "a\\u0000b\\u202e"
    assert printable("") == "∅"
    assert printable("\u200d") == "\\u200d" and printable("\ufe0f\u200d") == "\\ufe0f\\u200d"  # invisible alone
    assert printable("\u05b0ab") == "◌\u05b0ab"
    family = "👨\u200d👩\u200d👧"
    assert printable(family) == family
    cut = printable("x" * (LONGEST - 3) + family + "yyy")
    assert cut == "x" * (LONGEST - 3) + "…"
    assert printable("e\u0301" * 20) == "e\u0301" * 11 + "…"


def test_words_are_found_in_pieces_of_every_kind() -> None:
    assert find_word("making", ["▁mak", "ing", "▁laws", "▁making"]) == [0, 1, 3]
    assert find_word("tuba", ["[CLS]", "tu", "##ba"]) == [1, 2]
    assert find_word("👍", ["👍 1/2", "👍 2/2", "x"]) == [0, 1]
    with pytest.raises(
        ValueError, match=r"no tokens on display spell the word 'mak ing'; choose a word of these: ▁mak ing"
    ):
        find_word("mak ing", ["▁mak", "ing"])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["<s>", "She", "▁b", "ank", ",", "▁r", "un", "ning", "."], ["<s>", "She", "▁bank", ",", "▁running", "."]),
        (["[CLS]", "the", "tu", "##ba", ".", "[SEP]"], ["[CLS]", "the", "tu##ba", ".", "[SEP]"]),
        (["b", "a", "▁", "r", "u", "n"], ["ba", "▁run"]),
        (["👍 1/2", "👍 2/2", "x"], ["👍 1/2👍 2/2", "x"]),
    ],
    ids=str,
)
def test_tokens_of_each_word(labels: list[str], words: list[str]) -> None:
    assert ["".join(labels[i] for i in tokens) for tokens in word_ranges(labels)] == words


def test_a_word_is_not_found_in_longer_ones_if_it_stands_alone() -> None:
    labels = ["▁run", "ning", "▁run"]
    assert find_word("run", labels) == [2] and whole_words("run", labels) == [range(2, 3)]
    assert find_word("run", labels[:2]) == [0] and whole_words("run", labels[:2]) == []
    assert whole_words("run", ["b", "▁", "r", "u", "n"]) == [range(2, 5)]
