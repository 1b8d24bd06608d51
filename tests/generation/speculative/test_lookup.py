"""Prompt look-up: which continuation is proposed."""

from __future__ import annotations

from qkv.generation.result import Hypothesis
from qkv.generation.speculation import PromptLookup
from qkv.generation.speculative.lookup import LookupProposer
from qkv.generation.speculative.rows import Continuation


def proposed(
    prompt: list[int], new: list[int] | None = None, most: int = 9, source: list[int] | None = None, **kind: int
) -> list[int]:
    row = Continuation(0, tuple(prompt), 99, Hypothesis(tokens=list(new or [])))
    proposer = LookupProposer(PromptLookup(**kind), 50, None if source is None else [source])
    return proposer.propose([row], [most]).tokens[0]


def test_what_followed_the_longest_ngram_is_proposed() -> None:
    assert proposed([1, 2, 3, 4, 9, 3, 5, 1, 2, 3], most=2) == [4, 9]
    assert proposed([1, 2, 3, 4, 9, 3, 5, 1, 2], new=[3], most=3) == [4, 9, 3]
    assert proposed([1, 2, 3, 4, 9, 3, 5, 1, 2, 3], most=2, max_ngram=1) == [5, 1]
    assert proposed([1, 2, 3, 7, 9, 3], min_ngram=2) == []
    assert proposed([1, 2, 3]) == []


def test_at_most_num_speculative_tokens_are_proposed() -> None:
    assert proposed([1, 2, 3, 4, 5, 6, 1], num_speculative_tokens=4) == [2, 3, 4, 5]
    assert proposed([1, 2, 3, 4, 5, 6, 1], most=0) == []


def test_a_repetition_continues() -> None:
    assert proposed([1, 2, 1, 2], most=5) == [1, 2, 1, 2, 1]


def test_sources_are_searched_and_their_own_tokens_are_not_proposed() -> None:
    assert proposed([0], new=[7, 8], source=[7, 8, 9, 10], most=2) == [9, 10]
    assert proposed([0], new=[7, 8], source=[7, 8, 9, 10]) == [9, 10], "the text ends with the source"
    assert proposed([0], new=[7, 8], source=[7, 8, 9, 60, 10]) == [9], "60 is not in the vocabulary"


def test_a_copy_continues_after_a_replaced_token() -> None:
    row = Continuation(0, (1, 2, 3, 4, 5, 6, 4, 5, 7, 1, 2), 99)
    proposer = LookupProposer(PromptLookup(), 50)
    assert proposer.propose([row], [4]).tokens == [[3, 4, 5, 6]]
    row.new.extend([3, 9])  # 4 was rejected
    proposer.checked([1], [0])
    assert proposer.propose([row], [3]).tokens == [[]], "9 occurs nowhere, and the copy continued with 5"
    row.new.extend([5])
    assert proposer.propose([row], [2]).tokens == [[7, 1]]
