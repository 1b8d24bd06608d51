from __future__ import annotations

import json

import numpy as np
import pytest
from data_stand_in import Characters

from qkv.data.batching import encoding
from qkv.data.batching.encoded import Encoded
from qkv.data.batching.encoding import CharacterLimit, Reader, Stopped, encode_function
from qkv.data.batching.token_cache import TokenCache
from qkv.data.source import Counts, Example, Skipped

TABLE: list[Example | Skipped | None] = [
    {"source": "ab", "target": "xyz"},
    None,
    Skipped("empty"),
    {"source": "c" * 50, "target": "w"},
    {"source": "d", "target": ""},
    Skipped("odd"),
    {"source": "", "target": "uv"},
]


def told(found: Encoded | None) -> list[tuple[int, ...]]:
    if found is None:
        return []
    spell = [[Characters().decode(ids.tolist()) for ids in side] for side in found.sides]
    return list(zip(found.places.tolist(), *spell, found.pieces.tolist(), strict=True))


def reading(indices: list[int], memory: TokenCache | None = None) -> tuple[list[tuple[int, ...]], Counts]:
    counts, tokenizer = Counts(), Characters()
    reader = Reader(CharacterLimit(20, True), memory=memory)
    return told(reader.read(TABLE, np.array(indices, np.int64), encode_function(tokenizer, None), counts)), counts


def test_good_examples_are_encoded_and_the_others_counted() -> None:
    found, counts = reading(list(range(7)))
    assert found == [(0, "ab", "xyz", 0), (4, "d", "", 0), (6, "", "uv", 0)]
    assert counts.read == 6 and counts.skipped == {"empty": 1, "odd": 1, "over-long": 1}


def test_a_huge_text_is_tokenized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PART", 10)
    tokenizer, texts = Characters(), ["a" * 95, "", "b" * 10]
    table: list[Example] = [{"text": text} for text in texts]
    found = Reader(None).read(table, np.arange(3), encode_function(tokenizer, None), Counts())
    assert [line[1] for line in told(found)] == texts and tokenizer.longest_seen == 10


@pytest.mark.parametrize("skip", [True, False])
def test_a_huge_line_never_reaches_the_tokenizer_whole(skip: bool) -> None:
    tokenizer, counts = Characters(), Counts()
    table: list[Example] = [{"source": "x" * (10 << 20), "target": "y" * (10 << 20)}]
    Reader(CharacterLimit(1280, skip)).read(table, np.arange(1), encode_function(tokenizer, None), counts)
    assert tokenizer.longest_seen <= 1280 and counts.skipped.total() == skip


def test_every_text_has_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PART", 10)
    seen: list[int] = []

    class Sampling(Characters):
        def sample(self, texts: list[str], seeds: list[int]) -> list[list[int]]:
            seen.extend(seeds)
            return [[1] for _ in texts]

    table: list[Example] = [{"source": "x" * 25, "target": "y"}, {"source": "x" * 25, "target": "y"}]
    for seed in (1, 2):
        Reader(None).read(table, np.arange(2), encode_function(Sampling(), seed), Counts())
    assert len(seen) == len(set(seen)) == 2 * 2 * (3 + 1)


def test_reading_stops_when_nobody_waits() -> None:
    with pytest.raises(Stopped):
        Reader(None, stopped=lambda: True).read(TABLE, np.arange(7), encode_function(Characters(), None), Counts())


def test_pieces_of_a_document() -> None:
    table: list[Example] = [{"text": "a", "piece": "first"}, {"text": "b", "piece": "middle"}, {"text": "c"}]
    found = Reader(None).read(
        [*table, {"text": "d", "piece": "last"}], np.arange(4), encode_function(Characters(), None), Counts()
    )
    assert found is not None and found.running
    assert found.begins.tolist() == [True, False, True, False] and found.ends.tolist() == [False, False, True, True]


class Talking(Characters):
    """Says a conversation as its contents, one behind the other."""

    class chat:
        @staticmethod
        def row(messages: list[dict[str, str]]) -> tuple[list[int], list[int]]:
            if not messages:
                raise ValueError("nothing is said")
            texts = [(ord(c) + 10, m["role"] == "assistant") for m in messages for c in m["content"]]
            return [i for i, _ in texts], [int(learned) for _, learned in texts]


def conversation(*turns: str) -> Example:
    messages = [{"role": ("user", "assistant")[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return {"text": "".join(turns), "messages": json.dumps(messages), "where": "a.jsonl, line 7"}


def test_conversations_know_what_is_learned_also_from_memory() -> None:
    table: list[Example | Skipped | None] = [
        conversation("ab", "c"),
        None,
        conversation("x" * 30, "y"),
        conversation("d", "ef"),
    ]
    for memory in (None, TokenCache(len(table), 1 << 20)):
        for _ in range(2):
            counts = Counts()
            reader = Reader(CharacterLimit(20, False), memory=memory, tokenizer=Talking())
            found = reader.read(table, np.arange(4), encode_function(Talking(), None), counts)
            assert found is not None and found.conversations and not found.running
            assert [Talking().decode(ids.tolist()) for ids in found.sides[0]] == ["abc", "def"]
            assert [ids.tolist() for ids in found.sides[1]] == [[0, 0, 1], [0, 1, 1]]
            assert counts.skipped == {"over-long": 1}


def test_a_conversation_that_fails_is_named() -> None:
    for tokenizer, said in ((Talking(), r"^a\.jsonl, line 7: nothing is said"), (Characters(), "^conversations need")):
        with pytest.raises(ValueError, match=said):
            Reader(None, tokenizer=tokenizer).read(
                [conversation()], np.arange(1), encode_function(tokenizer, None), Counts()
            )
