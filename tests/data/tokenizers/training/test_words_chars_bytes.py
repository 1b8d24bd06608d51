"""Word, character and byte tokenizers."""

from __future__ import annotations

from qkv.data.tokenizers.tokenizer import train
from qkv.data.tokenizers.training.words_chars_bytes import Char, Word


def test_char_and_word_keep_the_most_frequent() -> None:
    chars = train(Char(vocab_size=6), ["aaabbc"])
    assert chars.tokens(range(6))[4:] == ["a", "b"] and chars.encode("abc") == [4, 5, 1]
    words = train(Word(vocab_size=6, min_frequency=2), ["x x x y y z"])
    assert words.encode("x y z") == [4, 5, 1]
