"""What a tokenizer.json may make of a text: the worst that its stages could do is computed, and the usual is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from made_tokenizers import SPECS, made

from qkv.data.tokenizers.safety_limits import check, check_charsmap
from qkv.data.tokenizers.sentencepiece.model_file import parse


def regex(pattern: str, content: str = "x") -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@pytest.mark.parametrize("name", SPECS)
def test_our_own_are_within_bounds(name: str) -> None:
    check(json.loads(made(name).to_json()))


@pytest.mark.parametrize(
    "pattern", ["", "a*", "a?", "a|", "^", r"\b", "(?=a)", "a{0,3}", r"\s{0}", "(a)", "[a]*", r"\p{M}{0,1}"]
)
def test_a_pattern_that_may_match_emptily_doubles_a_text(pattern: str) -> None:
    check({"normalizer": {"type": "Sequence", "normalizers": [regex(pattern)] * 7}})
    with pytest.raises(ValueError, match="normalizer could make a text 256 times as long; the limit is 128"):
        check({"normalizer": {"type": "Sequence", "normalizers": [regex(pattern)] * 8}})


@pytest.mark.parametrize("pattern", [" {2,}", r"\s+", "a", ".", r"\p{M}+", r"\d{1,3}"])
def test_a_pattern_that_takes_a_character_only_replaces_it(pattern: str) -> None:
    check({"normalizer": {"type": "Sequence", "normalizers": [regex(pattern)] * 50}})


def test_what_removes_text_may_be_there_any_number_of_times() -> None:
    check({"decoder": {"type": "Sequence", "decoders": [regex("a*", "")] * 50}})


def test_a_template_names_a_text_as_often_as_it_is_repeated() -> None:
    once = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [once] * 2, "pair": [once], "special_tokens": {}}
    check({"post_processor": template})
    with pytest.raises(ValueError, match=r"post_processor could make a text 1\.02e"):
        check({"post_processor": {"type": "Sequence", "processors": [template] * 10}})


def test_a_table_of_characters_says_how_long_its_texts_are() -> None:
    assert check_charsmap(b"\x04\0\0\0abcd" + b"x\0ffi\0") == 3
    for broken in (b"", b"\x01", b"\x05\0\0\0abcde", b"\xff\xff\xff\xff"):
        with pytest.raises(ValueError, match="cut off"):
            check_charsmap(broken)


def test_a_sentencepiece_model_of_huge_pieces_is_refused() -> None:
    piece = b"\n" + _varint(5000) + b"a" * 5000
    with pytest.raises(ValueError, match="a piece of 5,000 bytes"):
        parse(b"\n" + _varint(len(piece)) + piece)


def _varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80, number >> 7]) if number > 127 else bytes([number])


def test_two_tokens_of_one_id_are_refused() -> None:
    check({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}}})
    with pytest.raises(ValueError, match="several tokens of its vocabulary have the id 0"):
        check({"model": {"type": "WordLevel", "vocab": {"<pad>": 0, "<unk>": 0, "a": 1}}})
