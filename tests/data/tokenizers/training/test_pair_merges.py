"""Words whose pairs are merged, and their counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qkv.data.tokenizers.training.pair_merges import SymbolWords

made_words = st.dictionaries(st.text("abcde", min_size=1, max_size=8), st.integers(1, 9), min_size=1, max_size=25)


def enumerate_counts(words: SymbolWords) -> list[tuple[str, int]]:
    return [(str(i), count) for i, count in enumerate(words.counts)]


@given(made_words)
def test_counts_stay_true_of_the_corpus(counts: dict[str, int]) -> None:
    words = SymbolWords(counts)
    for _ in range(5):
        live = [pair for pair, count in words.pairs.items() if count]
        if not live:
            break
        words.merge(max(live))
        again = SymbolWords(dict(enumerate_counts(words)), split=lambda key: words.cut[int(key)])
        assert +again.pairs == +words.pairs and +again.symbols == +words.symbols and again.size == words.size
