"""BPE with lexicographic ties makes the merges of a straightforward implementation over bytes."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.pipelines import byte_symbols
from qkv.data.tokenizers.tokenizer import Tokenizer, train
from qkv.data.tokenizers.training.bpe import BPE, bpe_steps
from qkv.data.tokenizers.training.pair_merges import MergeStep

WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")  # GPT-2's, by `re`
BYTE_OF = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
TEXT = (
    "low low low low low\nlower lower widest widest widest\nnewest newest newest newest newest newest\n"
    "It's naïve: größer, größte; ΑΒΓ αβγ 2024 2025!\n\n   don't we've — 東京 東京\t\tend"
) * 2


def reference(text: str, count: int, special: str | None = None) -> list[tuple[bytes, bytes]]:
    """Count all pairs anew for every merge; of the most frequent the greatest pair of bytes."""
    parts = [text] if special is None else text.split(special)
    words = Counter(tuple(bytes([b]) for b in word.encode()) for part in parts for word in WORDS.findall(part))
    merges: list[tuple[bytes, bytes]] = []
    while len(merges) < count:
        pairs = Counter[tuple[bytes, bytes]]()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({joined(word, best): times for word, times in words.items()})
    return merges


def joined(word: tuple[bytes, ...], pair: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    made, i = [], 0
    while i < len(word):
        whole = word[i : i + 2] == pair
        made.append(pair[0] + pair[1] if whole else word[i])
        i += 1 + whole
    return tuple(made)


def merges_of(tokenizer: Tokenizer) -> list[tuple[bytes, bytes]]:
    merges = json.loads(tokenizer.to_json())["model"]["merges"]
    return [(spelled(left), spelled(right)) for left, right in merges]


def spelled(symbol: str) -> bytes:
    return bytes(BYTE_OF[character] for character in symbol)


LEXICOGRAPHIC = BPE(vocab_size=256 + 4 + 90, min_frequency=1, ties="lexicographic")


def test_the_same_merges_as_the_reference() -> None:
    expected = reference(TEXT, 90)
    assert merges_of(train(LEXICOGRAPHIC, [TEXT])) == expected
    assert merges_of(train(LEXICOGRAPHIC.replace(ties="oldest"), [TEXT])) != expected  # so that ties matter here
    assert expected[:2] == [(b"w", b"e"), (b"s", b"t")]  # 16 each


def test_texts_between_special_tokens_are_apart() -> None:
    special = "<|endoftext|>"
    text = special.join(["low lower\n\n", "\n\n", "  ", "newest\n\n", "widest"]) * 3
    spec = LEXICOGRAPHIC.replace(special=(special,), vocab_size=256 + 5 + 30)
    assert merges_of(train(spec, [text])) == reference(text, 30, special)


@pytest.mark.filterwarnings("error")
@given(st.text("ab é\n", min_size=1, max_size=60).filter(str.strip))
def test_any_text_has_the_merges_of_the_reference(text: str) -> None:
    found, expected = merges_of(train(LEXICOGRAPHIC, [text])), reference(text, 90)
    assert found[: len(expected)] == expected


def test_the_vocabulary_is_laid_out_as_ever() -> None:
    tokenizer = train(LEXICOGRAPHIC, [TEXT])
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    assert [tokenizer.id(name) for name in ("<pad>", "<unk>", "<s>", "</s>")] == [0, 1, 2, 3]
    assert tokenizer.vocab_size == 260 + len(merges_of(tokenizer)) and tokenizer.id("st") > 259
    traced: list[MergeStep] = []
    assert train(LEXICOGRAPHIC, [TEXT], trace=traced.append).to_json() == tokenizer.to_json()
    assert [(spelled(step.left), spelled(step.right)) for step in traced] == merges_of(tokenizer)


def test_over_characters_they_are_compared_as_such() -> None:
    spec = BPE(vocab_size=40, min_frequency=1, byte_level=False, ties="lexicographic")
    tokenizer = train(spec, ["ab cd ab cd"])
    assert tokenizer.tokens(tokenizer.encode("ab cd")) == ["▁ab", "▁cd"]
    assert next(bpe_steps({"ab": 2, "cd": 2}, 1, ties="lexicographic")).token == "cd"
    assert next(bpe_steps({"ab": 2, "cd": 2}, 1)).token == "ab"
