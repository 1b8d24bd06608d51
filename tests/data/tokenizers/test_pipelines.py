"""Helpers of pipelines: byte symbols, and patterns that find the longest marker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from qkv.data.tokenizers.pipelines import any_of, byte_symbols, count_metaspace_words, count_words
from qkv.data.tokenizers.training.unigram import Unigram


def test_byte_symbols_match_the_library() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256 and sorted(symbols) == sorted(pre_tokenizers.ByteLevel.alphabet())
    (piece,) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é\n")
    assert piece[0] == "".join(symbols[byte] for byte in "é\n".encode())


def test_the_longest_marker_at_a_place_is_found() -> None:
    assert any_of(["<a", "<a>", "."]).findall("<a> <a.") == ["<a>", "<a", "."]
    assert any_of([]).search("anything") is None


@given(st.lists(st.text(" ▁a1é\n<s>", max_size=12), max_size=5), st.booleans(), st.booleans())
def test_words_cut_at_spaces_match_the_pre_tokenizer(texts: list[str], prefix: bool, digits: bool) -> None:
    pipeline = Unigram(prefix_space=prefix, split_digits=digits).pipeline(models.Unigram())
    assert count_metaspace_words(texts, pipeline, prefix) == count_words(texts, pipeline)
