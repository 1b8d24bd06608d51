"""The token cache returns what tokenizing returns, and saves tokenizing again."""

from __future__ import annotations

import numpy as np
import pytest
from data_stand_in import Characters
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.batching.encoded import Encoded
from qkv.data.batching.encoding import CharacterLimit, Reader, encode_function
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


@given(st.lists(st.permutations(range(7)).flatmap(lambda p: st.integers(0, 7).map(lambda n: p[:n])), max_size=6))
def test_a_memory_gives_what_reading_gives(asked: list[list[int]]) -> None:
    for budget in (0, 100, 160, 1 << 20):
        memory = TokenCache(len(TABLE), budget)
        for indices in asked:
            again, counts = reading(indices, memory)
            plain, expected = reading(indices)
            assert again == plain and (counts.read, counts.skipped) == (expected.read, expected.skipped)
        assert memory.nbytes <= budget


def test_what_is_remembered_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = TokenCache(len(TABLE), 1 << 20)
    first = reading([0, 2, 4, 6, 1], memory)
    monkeypatch.setitem(globals(), "TABLE", [Skipped("gone")] * 7)
    assert reading([0, 2, 4, 6, 1], memory)[0] == first[0]
    assert reading([3], memory)[1].skipped == {"gone": 1}
