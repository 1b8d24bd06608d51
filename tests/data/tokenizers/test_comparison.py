"""Figures and examples of tokenizers compared on a text."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from qkv.data.tokenizers.comparison import compare, group_of
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE
from qkv.data.tokenizers.training.wordpiece import WordPiece

ESSAY = ["The patient has a history of high blood pressure and was short of breath after meals."] * 4
CHART = ["pt w/ hx of HTN c/o SOB p.c.", "hx HTN, SOB"]


def wordpiece(*pieces: str, accents: bool = True) -> Tokenizer:
    raw = tokenizers.Tokenizer(models.WordPiece({p: i for i, p in enumerate(["[UNK]", *pieces])}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=not accents)
    raw.add_special_tokens(["[UNK]"])
    return Tokenizer(raw)


def test_the_figures_of_a_hand_made_vocabulary() -> None:
    made = wordpiece("play", "##ed", "##ing", "we", ".")
    result = compare({"made": made}, ["we played. we sang", "", "playing  café"])
    each = result.tokenizers["made"]
    assert (result.text.lines, result.text.words, result.text.distinct_words) == (3, 6, 5)
    assert (result.text.characters, result.text.bytes) == (31, 32)
    assert (each.kind, each.vocab_size, each.used) == ("wordpiece", 6, 6)
    assert each.tokens == 9  # we play ##ed . we [UNK] play ##ing [UNK]
    assert each.tokens_per_word == pytest.approx(9 / 6)
    assert each.characters_per_token == pytest.approx(31 / 9) and each.bytes_per_token == pytest.approx(32 / 9)
    assert each.whole_words == pytest.approx(4 / 6)  # an unknown word is one token
    assert (each.unknown, each.unknown_pieces) == (2, {"sang": 1, "café": 1})
    assert each.coverage == pytest.approx(18 / 26)
    assert each.restored == pytest.approx(1 / 3)  # the empty line


def test_tokens_agree_with_the_library_and_spaces_alone_belong_to_no_word() -> None:
    lines = ["  The  cats ate\tthe mats  ", "наши 東京 e\u0301", "a " * 2000]
    made = {kind: train(kind, [*ESSAY, *lines]) for kind in ("bpe", "wordpiece", "unigram", "word", "char", "byte")}
    for name, each in compare(made, lines).tokenizers.items():
        assert each.tokens == sum(len(made[name].raw.encode(line, add_special_tokens=False).ids) for line in lines)
        assert (each.coverage, each.unknown) == (1.0, 0), name
    one_letter = compare({"char": made["char"]}, ["a b  c"]).tokenizers["char"]
    assert one_letter.tokens_per_word == pytest.approx(6 / 3) and one_letter.whole_words == 1.0


def test_dropped_characters_are_unknown_and_composed_ones_are_not() -> None:
    raw = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    each = compare({"bpe": Tokenizer(raw)}, ["axyb za"]).tokenizers["bpe"]
    assert (each.unknown_pieces, each.coverage) == ({"xy": 1, "z": 1}, 0.5)
    each = compare({"bert": wordpiece("cafe", accents=False)}, ["cafe\u0301 café a\u200b"]).tokenizers["bert"]
    assert each.unknown_pieces == {"a": 1, "\u200b": 1} and each.coverage == pytest.approx(9 / 11)


def test_unknown_white_space_is_counted() -> None:
    each = compare({"char": train("char", ["ab ab"])}, ["a\tb  ab"]).tokenizers["char"]
    assert (each.unknown, each.unknown_pieces, each.coverage) == (1, {"\t": 1}, 1.0)


def test_a_tokenizer_of_essays_spends_more_tokens_on_a_doctors_shorthand() -> None:
    made = {"essay": train(BPE(vocab_size=330), ESSAY), "chart": train(BPE(vocab_size=330), CHART * 4)}
    result = compare(made, CHART)
    essay, chart = result.tokenizers.values()
    assert (essay.tokens, chart.tokens, result.text.words) == (35, 18, 11)
    assert essay.unknown == chart.unknown == 0
    (first, *_) = result.examples
    assert first.group == "shorthand" and len(first.pieces["essay"]) > len(first.pieces["chart"])
    assert [e.word for e in compare(made, CHART, examples=1).examples][:1] == [first.word]


def test_examples_are_ordered_by_the_tokens_that_they_cost_in_the_whole_text() -> None:
    made = {"char": train("char", ["abc abcdef"]), "word": train("word", ["abc abcdef"])}
    result = compare(made, ["abc abc abc abc abcdef"])
    assert [(e.word, e.count) for e in result.examples] == [("abc", 4), ("abcdef", 1)]  # 4 · 2 against 5 more tokens
    assert result.examples[0].pieces == {"char": ("a", "b", "c"), "word": ("abc",)}


def test_two_words_share_a_continuation() -> None:
    made = train(WordPiece(vocab_size=40, min_frequency=1), ["dining banking dining banking running"])
    result = compare({"w": made, "char": train("char", ["dining banking"])}, ["dining banking"])
    assert all("##ing" in e.pieces["w"] or e.pieces["w"] == (e.word,) for e in result.examples)


@pytest.mark.parametrize(
    ("group", "words"),
    {
        "shorthand": "SOB b/p q.d. hx BiPAP (HTN)",
        "numbers": "158/92 x3 81mg ²",
        "long words": "hypercholesterolemia, www.gutenberg.org",
        "other words": "patient don't e-mail I a – наши 東京",
    }.items(),
)
def test_words_have_groups(group: str, words: str) -> None:
    assert {word: group_of(word) for word in words.split()} == dict.fromkeys(words.split(), group)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="the text has no words"):
        compare({"byte": train("byte", [])}, ["", " \t"])
    with pytest.raises(ValueError, match="examples=-1 is negative"):
        compare({"byte": train("byte", [])}, ["a"], examples=-1)
