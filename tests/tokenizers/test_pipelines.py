"""Helpers of pipelines: byte symbols, and patterns that find the longest marker."""

from __future__ import annotations

from qkv.tokenizers.pipelines import any_of, byte_symbols
from tokenizers import pre_tokenizers


def test_byte_symbols_are_those_of_the_library() -> None:
    symbols = byte_symbols()
    assert len(set(symbols)) == 256 and sorted(symbols) == sorted(pre_tokenizers.ByteLevel.alphabet())
    (piece,) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str("é\n")
    assert piece[0] == "".join(symbols[byte] for byte in "é\n".encode())


def test_the_longest_marker_at_a_place_is_found() -> None:
    assert any_of(["<a", "<a>", "."]).findall("<a> <a.") == ["<a>", "<a", "."]
    assert any_of([]).search("anything") is None
