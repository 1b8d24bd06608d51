"""BigBird's blocks: which there are and how often, verdicts, the count, draws, and every backend on them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import qkv
from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.patterns.basic import Full, Interval, Pattern, by_head, causal, full
from qkv.nn.patterns.bigbird import BigBird

SMALL = BigBird(size=2, random=1)


def over(pattern: BigBird, width: int, heads: int = 1) -> BigBird:
    made = pattern.over(width, heads)
    assert isinstance(made, BigBird)
    return made


def test_without_a_seed_every_random_block_is_the_first() -> None:
    assert over(SMALL, 16).counts.tolist() == [
        [
            [1, 1, 1, 1, 1, 1, 1, 1],
            [2, 1, 1, 0, 0, 0, 0, 1],
            [2, 1, 1, 1, 0, 0, 0, 1],
            [2, 0, 1, 1, 1, 0, 0, 1],
            [2, 0, 0, 1, 1, 1, 0, 1],
            [2, 0, 0, 0, 1, 1, 1, 1],
            [2, 0, 0, 0, 0, 1, 1, 1],
            [1, 1, 1, 1, 1, 1, 1, 1],
        ]
    ]


@pytest.mark.parametrize("random", [0, 1, 2, 3])
def test_what_is_drawn_is_new_to_a_block_and_each_heads_own(random: int) -> None:
    plain, drawn = over(BigBird(size=2, random=random), 60, 4), over(BigBird(size=2, random=random, seed=7), 60, 4)
    assert plain.heads == 1 and drawn.heads == 4
    more = drawn.counts - plain.counts.clamp(max=1)
    assert not more[:, [0, -1]].any() and (more[:, 1:-1].sum(-1) == random).all()
    assert plain.repeats == (random > 0) and not drawn.repeats
    assert not more[:, :, 4 + 2 * random :].any(), "draws are among the first blocks"
    if random:
        assert not torch.equal(more[0], more[1])
        assert not torch.equal(drawn.counts, over(BigBird(size=2, random=random, seed=8), 60, 4).counts)


def test_draws_for_the_lengths_of_the_paper() -> None:
    drawn, plain = (over(BigBird(seed=seed, longest=4096), 1024, 12) for seed in (0, None))
    assert drawn.repeats and (drawn.counts.sum(-1) == plain.counts.sum(-1)).all(), "they may repeat what is seen anyway"
    far = over(BigBird(seed=0, longest=4096), 4096, 12).counts[:, 20:60]
    assert (far[..., 1:16].sum(-1) == 3).all(), "they are within the first 1024 tokens"


@pytest.mark.parametrize("width", [1, 13, 14])
def test_short_rows_see_everything(width: int) -> None:
    assert SMALL.over(width) == Full()
    assert SMALL.mask(width).all() and SMALL.pairs(width) == width**2


@pytest.mark.parametrize("pattern", [SMALL, BigBird(size=3, random=2, seed=1), BigBird(size=64)])
@pytest.mark.parametrize("n", [15, 33, 140, 800])
def test_pairs_is_the_sum_of_the_mask(pattern: BigBird, n: int) -> None:
    assert pattern.pairs(n) == int(pattern.mask(n).sum())


spans = st.tuples(st.integers(0, 14), st.integers(0, 14)).map(sorted)


@given(st.none() | st.integers(0, 9), spans, spans)
def test_block_verdicts_never_contradict_the_rule(seed: int | None, q: list[int], k: list[int]) -> None:
    pattern = over(SMALL.replace(seed=seed), 15, 3)
    layout, head = Layout.full(15), torch.arange(pattern.heads)[:, None, None]
    seen = pattern.allowed(layout.slice(q[0], q[1] + 1).queries(), layout.slice(k[0], k[1] + 1).keys(), head)
    maybe, surely = pattern.block(Interval(*q), Interval(*k))
    assert bool(maybe) or not seen.any()
    assert not bool(surely) or bool(seen.all())
    rows, columns = Interval(*(torch.tensor([[at]]) for at in q)), Interval(*(torch.tensor([at, at]) for at in k))
    for one, many in zip((maybe, surely), pattern.block(rows, columns), strict=True):
        assert many.tolist() == [[bool(one)] * 2]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("lengths", [(40,), (40, 31, 7)])
def test_backends_agree(seed: int | None, lengths: tuple[int, ...]) -> None:
    pattern, layout = over(SMALL.replace(seed=seed), 40, 4), Layout.from_lengths(lengths)
    q, k, v = torch.randn(3, len(lengths), 40, 4, 8, dtype=torch.float64)
    bias = pattern.log_times(layout.queries(), layout.keys()).double()
    expected = attend(q, k, v, pattern=pattern, layout=layout, bias=bias, backend="reference")
    for backend in ("tiled", "sdpa"):
        found = attend(q, k, v, pattern=pattern, layout=layout, bias=bias, backend=backend)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled", "auto"])
def test_attend_sizes_it_by_the_sequence_at_hand(backend: str, seed: int | None) -> None:
    small, layout = SMALL.replace(seed=seed), Layout.from_lengths([40, 33])
    q, k, v = (torch.randn(2, 40, 4, 8, dtype=torch.float64) for _ in range(3))
    for pattern in (small, small & causal(), ~small, by_head(small, full())):
        found, expected = (
            attend(q, k, v, pattern=p, layout=layout, backend=backend) for p in (pattern, pattern.over(40, 4))
        )
        assert torch.equal(found, expected)
    short = (x[:, :10] for x in (q, k, v))
    assert attend(*short, pattern=small, backend=backend).shape == (2, 10, 4, 8)


def test_a_model_of_it_trains_and_does_not_decode() -> None:
    spec = qkv.preset("gpt2", vocab_size=20, d_model=16, n_heads=2, n_layers=1)
    spec = spec.replace({"decoder.blocks.*.attention.pattern": SMALL & causal()})
    model, ids = qkv.build(qkv.Transformer.from_json(spec.to_json())), torch.randint(20, (2, 30))
    model(ids, labels=ids).loss.backward()
    cache = model.start(2)
    model.step(ids, cache)
    with pytest.raises(ValueError, match=r"number of tokens of a row, .* unknown for 1 queries and 31 keys"):
        model.step(ids[:, :1], cache)


def test_it_is_a_value() -> None:
    pattern = over(BigBird(size=2, seed=3, longest=64), 60, 4)
    again = Pattern.from_json(pattern.to_json())
    assert again == pattern and hash(again) == hash(pattern)
    assert BigBird(seed=3).picture(720).startswith("<svg")


def test_wrong_values_are_refused() -> None:
    views = Layout.full(20).queries(), Layout.full(20).keys()
    with pytest.raises(ValueError, match=r"depends on the width of rows; call over\(width\)"):
        SMALL.allowed(*views)
    with pytest.raises(ValueError, match=r"blocks=7 are too few to draw random=1 more from"):
        BigBird(random=1, blocks=7)
    with pytest.raises(ValueError, match="block 1 can draw from 1 blocks within 1024 tokens, fewer than random=3"):
        BigBird(size=256, random=3, seed=0).over(4096).counts  # type: ignore[attr-defined]  # noqa: B018
