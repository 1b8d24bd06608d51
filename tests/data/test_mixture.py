"""Several sources as one: how much of each, each with its prefix, and none of it left out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.data.mixture import MixtureSource, shares
from qkv.data.readers.parallel_text import Pairs
from qkv.data.synthetic.copy_reverse_sort import Reverse, Sort


def pairs(path: Path, count: int, word: str) -> Pairs:
    path.write_text("".join(f"{word}{i}\t{i}\n" for i in range(count)))
    return Pairs(path=str(path), validation_path=str(path), test_path=str(path))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6), st.floats(0.5, 10))
def test_shares_follow_the_temperature(sizes: list[int], temperature: float) -> None:
    total = sum(sizes) + 20
    counts = shares(sizes, total, temperature)
    weights = np.array(sizes, float) ** (1 / temperature)
    assert min(counts) >= 1 and abs(sum(counts) - total) < len(sizes)
    assert np.abs(np.array(counts) - total * weights / weights.sum()).max() <= len(sizes)


def test_with_one_as_temperature_every_example_is_seen_once() -> None:
    assert shares([10, 30], 40) == [10, 30]
    assert shares([10, 30], 40, limit=10) == [20, 20]


def test_parts_are_drawn_whole_before_anything_comes_twice(tmp_path: Path) -> None:
    parts = [
        {"source": pairs(tmp_path / "a.tsv", 4, "a"), "prefix": "say: "},
        {"source": pairs(tmp_path / "b.tsv", 36, "b")},
    ]
    made = MixtureSource(parts=parts, temperature=2.0)
    seen: Counter[str] = Counter()
    for epoch in range(4):
        table = made.table("train", seed=3, epoch=epoch)
        seen.update(table[i]["source"] for i in range(len(table)))  # type: ignore[index]
        assert len(table) == 40
    small, large = ([n for text, n in seen.items() if text.startswith(word)] for word in ("say: a", "b"))
    assert sum(small) == 40 and set(small) == {10} and len(large) == 36 and max(large) - min(large) <= 1
    assert seen.total() == 160


def test_an_epoch_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    made = MixtureSource(
        parts=[{"source": "reverse", "prefix": "turn: "}, {"source": pairs(tmp_path / "a.tsv", 30, "a")}]
    )
    first, again = (made.table("train", seed=1, epoch=2) for _ in range(2))
    assert [first[i] for i in (5, 20_010)] == [again[i] for i in (5, 20_010)]
    assert first[0]["source"].startswith("turn: ")  # type: ignore[index]


def test_what_is_held_out_is_the_parts_own() -> None:
    made = MixtureSource(parts=[{"source": Reverse(test=3), "prefix": "r "}, {"source": Sort(test=2), "prefix": "s "}])
    assert [e["source"][:2] for e in made.examples("test")] == ["r "] * 3 + ["s "] * 2


def test_a_mixture_in_a_mixture_is_refused() -> None:
    inner = {"kind": "mixture", "parts": [{"source": "copy"}]}
    with pytest.raises(ValueError, match="a part of a mixture is no mixture itself"):
        MixtureSource(parts=[{"source": inner}])
