"""Random blocks: what is drawn, that it is the same wherever it is asked for, verdicts, the count. The other sparse
patterns are in test_patterns.py, among everything that is composed of them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import ByHead, Interval, Pattern, RandomBlocks, causal, chunks, global_tokens, random_blocks

made = st.builds(RandomBlocks, size=st.integers(1, 4), count=st.integers(1, 4), seed=st.integers(0, 99))


def seen(pattern: Pattern, n_blocks: int) -> torch.Tensor:
    """(blocks, blocks), of blocks that are one token wide."""
    return pattern.replace(size=1).mask(n_blocks)


@given(made)
def test_each_block_draws_its_number_of_those_before_it(pattern: RandomBlocks) -> None:
    drawn = [[int(x[i]) for x in pattern._drawn(torch.arange(30))] for i in range(30)]
    for i, mine in enumerate(drawn):
        real = [j for j in mine if j >= 0]
        assert len(set(real)) == len(real) == min(i, pattern.count) and all(j < i for j in real)
    wanted = [[j in drawn[i] or i in drawn[j] for j in range(30)] for i in range(30)]
    assert seen(pattern, 30).tolist() == wanted


@given(made, st.integers(1, 40))
def test_a_block_is_seen_as_a_whole(pattern: RandomBlocks, n: int) -> None:
    whole = seen(pattern, -(-n // pattern.size))
    spread = whole.repeat_interleave(pattern.size, 0).repeat_interleave(pattern.size, 1)
    assert torch.equal(pattern.mask(n), spread[:n, :n])


@given(made, st.integers(1, 20), st.integers(1, 20))
def test_longer_rows_draw_the_same(pattern: RandomBlocks, n: int, more: int) -> None:
    assert torch.equal(pattern.mask(n + more)[:n, :n], pattern.mask(n))
    whole = Layout.full(n + more)
    late = pattern.allowed(whole.slice(n, n + more).queries(), whole.keys())
    assert torch.equal(late[0], pattern.mask(n + more)[n:]), "as a decoder with a cache asks"


def test_draws_are_even_and_follow_the_seed() -> None:
    counts: Counter[int] = Counter()
    for seed in range(600):
        counts.update(int(x[0]) for x in RandomBlocks(size=1, count=2, seed=seed)._drawn(torch.tensor([12])))
    assert sum(counts.values()) == 1200 and set(counts) == set(range(12))
    assert all(60 < count < 140 for count in counts.values()), counts  # 100 each; four deviations are about 38
    assert not torch.equal(random_blocks(1, 2, seed=1).mask(30), random_blocks(1, 2, seed=2).mask(30))


spans = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted)


@settings(max_examples=200)
@given(made, spans, spans)
def test_verdicts_are_exact(pattern: RandomBlocks, q: list[int], k: list[int]) -> None:
    rows, columns = ([x // pattern.size for x in span] for span in (q, k))
    part = seen(pattern, 41)[rows[0] : rows[1] + 1, columns[0] : columns[1] + 1]
    maybe, surely = pattern.block(Interval(*q), Interval(*k))
    assert (bool(maybe), bool(surely)) == (bool(part.any()), bool(part.all()))
    grid = pattern.block(Interval(*(torch.tensor([[x]]) for x in q)), Interval(*(torch.tensor([x, x]) for x in k)))
    assert [x.tolist() for x in grid] == [[[bool(x)] * 2] for x in (maybe, surely)]


def test_a_verdict_on_very_many_blocks_is_unsure() -> None:
    assert random_blocks(1, 1).block(Interval(0, 10_000), Interval(0, 10_000)) == (True, False)


@pytest.mark.parametrize("n", [1, 64, 65, 300])
@pytest.mark.parametrize(
    "pattern",
    [
        random_blocks(3, 2),
        random_blocks(64, 1, seed=3),
        chunks(16, 1, 1) | random_blocks(16, 2) | global_tokens(16),
        random_blocks(8, 2, heads=3),
    ],
)
def test_pairs_is_the_sum_of_the_mask(pattern: Pattern, n: int) -> None:
    masks = [part.mask(n) for part in (pattern.parts if isinstance(pattern, ByHead) else [pattern])]
    assert pattern.pairs(n) == sum(int(mask.sum()) for mask in masks) // len(masks)


def test_pairs_of_a_long_row() -> None:
    size, count, n = 64, 3, 1 << 17
    assert random_blocks(size, count).pairs(n) == 2 * size**2 * sum(min(i, count) for i in range(n // size))


def test_heads_draw_each_for_itself() -> None:
    pattern = random_blocks(1, 2, seed=5, heads=3)
    assert pattern.per_head and pattern.head_period == 3
    assert [part.seed for part in pattern.parts] == [5, 6, 7]  # type: ignore[attr-defined]
    again = Pattern.from_json(pattern.to_json())
    assert again == pattern and hash(again) == hash(pattern)


@pytest.mark.parametrize("rows", [[[40]], [[13, 20, 7], [40]]])
def test_backends_agree_on_packed_rows(rows: list[list[int]]) -> None:
    pattern = causal() & (chunks(4) | random_blocks(4, 2, heads=2))
    layout = Layout.packed(rows)
    q, k, v = torch.randn(3, len(rows), 40, 4, 8, dtype=torch.float64)
    expected = attend(q, k, v, pattern=pattern, layout=layout, backend="reference")
    for backend in ("tiled", "sdpa"):
        torch.testing.assert_close(attend(q, k, v, pattern=pattern, layout=layout, backend=backend), expected)
    alone = slice(0, rows[0][0])
    found = attend(*(x[:1, alone] for x in (q, k, v)), pattern=pattern)
    torch.testing.assert_close(found[0], expected[0, alone], msg="a packed document draws as it does alone")
