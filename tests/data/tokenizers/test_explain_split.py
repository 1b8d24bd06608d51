"""How words are split, step by step: every account ends where the library ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_tokenizers import SPECS, hostile, made
from tokenizers import Tokenizer as Raw
from tokenizers import models, pre_tokenizers

from qkv.data.tokenizers.explain_split import LongestMatch, Merge, Segmentation, Splitter
from qkv.data.tokenizers.tokenizer import Tokenizer

every = pytest.mark.parametrize("name", SPECS)


@every
@given(text=st.one_of(st.text("catsmeß <>x̌", max_size=14), hostile))
def test_steps_end_where_the_library_does(name: str, text: str) -> None:
    tokenizer = made(name)
    splits = Splitter(tokenizer).split(text)
    assert [i for split in splits for i in split.ids] == tokenizer.encode(text)
    for split in splits:
        merges = [step for step in split.steps if isinstance(step, Merge)]
        matches = [step.piece for step in split.steps if isinstance(step, LongestMatch)]
        ways = [step for step in split.steps if isinstance(step, Segmentation)]
        assert len(merges) + len(matches) + len(ways) == len(split.steps)
        if merges:
            assert merges[-1].symbols == split.pieces
        if matches:
            assert split.pieces == (("<unk>",) if matches[-1] is None else tuple(matches))
        if ways:
            assert max(way.log_prob for way in ways) <= ways[0].log_prob + 1e-9
            if tokenizer.raw.get_vocab().keys() >= set(ways[0].symbols):
                assert ways[0].symbols == split.pieces


@every
def test_markers_in_a_word(name: str) -> None:
    for text in ("<de>the", "the<de> cat", "<de><2en>", "the <de>"):
        splits = Splitter(made(name)).split(text)
        assert [i for split in splits for i in split.ids] == made(name).encode(text)


def test_unigram_runners_up_are_the_next_best() -> None:
    """Against every way there is to cut the word."""
    tokenizer = made("unigram")
    scores = dict(json.loads(tokenizer.raw.model.__getstate__())["vocab"])

    def ways(word: str) -> Iterator[float]:
        if not word:
            yield 0.0
        for end in range(1, len(word) + 1):
            if word[:end] in scores:
                yield from (scores[word[:end]] + rest for rest in ways(word[end:]))

    (split,) = Splitter(tokenizer).split("mates")
    found = [step.log_prob for step in split.steps if isinstance(step, Segmentation)]
    assert found == pytest.approx(sorted(ways("▁mates"), reverse=True)[:5])


@pytest.mark.parametrize(
    ("symbols", "options", "merges"),
    [
        (["a", "b</w>", "ab</w>"], {"end_of_word_suffix": "</w>"}, 1),  # CLIP
        (["a", "##b", "ab"], {"continuing_subword_prefix": "##"}, 1),
        (["a", "b", "ab"], {"ignore_merges": True}, 0),  # Llama 3: whole words first
    ],
)
def test_foreign_bpe_splits(symbols: list[str], options: dict[str, Any], merges: int) -> None:
    raw = Raw(models.BPE({symbol: i for i, symbol in enumerate(symbols)}, [(symbols[0], symbols[1])], **options))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    (split,) = Splitter(Tokenizer.from_json(raw.to_str())).split("ab")
    assert split.ids == (2,) and len(split.steps) == merges
