"""Ring attention over p ranks: the numbers of one rank, forward and backward, whoever holds what."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from qkv.core.layout import Layout
from qkv.nn.attention.attend import attend
from qkv.nn.kernels.block_map import block_map
from qkv.nn.patterns.algebra import by_head, parts_of
from qkv.nn.patterns.basic import Pattern, causal, documents, full, global_tokens, prefix, sinks, window
from qkv.nn.patterns.bigbird import BigBird
from qkv.nn.patterns.sparse import chunks, dilated, random_blocks, strided
from qkv.nn.positions.base import Bias, Widths
from qkv.nn.positions.bias import ALiBi, T5Buckets
from qkv.training.parallel.model_parallel import ring as module
from qkv.training.parallel.model_parallel.ring import RingProblem, RingSchedule, attend_shards
from ring_attention import OneProcess, main, pairs, ring

ORDERS = ("contiguous", "zigzag")
HEADS = 4
PATTERNS: tuple[Pattern, ...] = (
    full(),
    causal(),
    causal() & window(3),
    window(2, ahead=4),
    causal() & (window(3) | sinks(2)),
    causal() | prefix(),
    window(2) | global_tokens(2),
    causal() & documents(),
    causal() & ~window(2),
    BigBird(size=2, random=1, seed=3, blocks=12, heads=HEADS),
    dilated(3, 2),
    causal() & chunks(3) | random_blocks(2, 1),
    by_head(strided(4, "local"), strided(4, "far")),
)


def tensors(t: int, s: int | None = None, n_kv_heads: int = 2, b: int = 2, dtype: torch.dtype = torch.float64) -> Any:
    s = t if s is None else s
    sizes = [(b, t, HEADS, 4), (b, s, n_kv_heads, 4), (b, s, n_kv_heads, 3)]
    return [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]


def outcome(result: tuple[Tensor, Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """Output, log-sum-exp, and the gradients of a value that depends on both."""
    out, lse = result
    generator = torch.Generator().manual_seed(5)
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in (out, lse)]
    value = (out * weights[0]).sum() + (lse.masked_fill(lse == -torch.inf, 0.0) * weights[1]).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(value, leaves)]


def same(leaves: list[Tensor], shards: int, order: Any = "zigzag", backend: str = "auto", **options: Any) -> None:
    bias = options.get("bias")
    trained = [bias] if isinstance(bias, Tensor) else [*bias.tensors] if bias is not None else []
    wanted = [*leaves, *(x for x in trained if x.requires_grad)]
    made = ring(*leaves, shards=shards, order=order, return_lse=True, backend=backend, **options)
    whole = attend(*leaves, return_lse=True, backend="reference", **options)
    torch.testing.assert_close(outcome(made, wanted), outcome(whole, wanted))


@st.composite
def layouts(draw: st.DrawFn, length: int) -> Layout | None:
    kind = draw(st.sampled_from(["none", "left", "right", "holes", "packed"]))
    if kind == "none":
        return None
    if kind == "holes":
        bits = draw(st.lists(st.booleans(), min_size=2 * length, max_size=2 * length))
        return Layout.from_mask(torch.tensor(bits).view(2, length))
    if kind == "packed":
        cuts = [draw(st.integers(0, length)) for _ in range(2)]
        return Layout.packed([[n for n in (cut, length - cut) if n] for cut in cuts], length)
    return Layout.from_lengths([draw(st.integers(0, length)), length], side=kind)


@given(
    data=st.data(),
    length=st.integers(1, 24),
    shards=st.integers(1, 5),
    order=st.sampled_from(ORDERS),
    pattern=st.sampled_from(PATTERNS),
    n_kv_heads=st.sampled_from([1, 2, 4]),
)
@settings(max_examples=150)
def test_any_split_gives_the_numbers_of_one_rank(
    data: st.DataObject, length: int, shards: int, order: Any, pattern: Pattern, n_kv_heads: int
) -> None:
    layout = data.draw(layouts(length)) or Layout.full(length)
    layout = layout.with_roles(4 * (layout.positions[..., 0] < 3).long())
    same(tensors(length, n_kv_heads=n_kv_heads), shards, order, pattern=pattern, layout=layout)


BIASES = {
    "alibi": ALiBi().module(Widths(32, HEADS, 8, None)).bias(),
    "t5": Bias(
        T5Buckets(buckets=8, max_distance=12), (torch.randn(8, HEADS, dtype=torch.float64, requires_grad=True),)
    ),
    "dense": torch.randn(2, HEADS, 13, 13, dtype=torch.float64, requires_grad=True),
    "rows": torch.randn(HEADS, 13, 1, dtype=torch.float64, requires_grad=True),
    "columns": torch.randn(13, dtype=torch.float64, requires_grad=True),
}


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", BIASES)
def test_biases_and_their_gradients(name: str, order: str, backend: str) -> None:
    same(tensors(13), 3, order, backend, bias=BIASES[name], pattern=causal(), softcap=2.0, scale=0.7)


@pytest.mark.parametrize("order", ORDERS)
def test_keys_of_another_length(order: str) -> None:
    places = {"layout": Layout.full(7, start=4), "kv_layout": Layout.from_lengths([11, 5])}
    same(tensors(7, 11), 3, order, pattern=causal(), **places)
    same(tensors(7, 11), 3, order)


def test_a_hidden_column_of_a_bias() -> None:
    bias = torch.zeros(9, 9, dtype=torch.float64)
    bias[:, 2] = bias[4] = -torch.inf
    same(tensors(9), 2, bias=bias, pattern=causal())


def test_the_same_without_a_loss_on_the_log_sum_exp() -> None:
    leaves = tensors(10)
    grads = [
        torch.autograd.grad(out.square().sum(), leaves)
        for out in (ring(*leaves, shards=4, pattern=causal()), attend(*leaves, pattern=causal()))
    ]
    torch.testing.assert_close(*grads)


@pytest.mark.slow
def test_gradients_agree_with_differences() -> None:
    leaves = tensors(6, b=1)
    assert torch.autograd.gradcheck(lambda *x: ring(*x, shards=2, pattern=causal(), return_lse=True), leaves)


def test_half_precision_is_joined_in_fp32() -> None:
    """Not further from the exact numbers than one rank is, however many join."""
    leaves = [x.detach().bfloat16().requires_grad_() for x in tensors(256)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    wanted = outcome(attend(*exact, pattern=causal(), return_lse=True, backend="reference"), exact)
    one = outcome(attend(*leaves, pattern=causal(), return_lse=True, backend="tiled"), leaves)
    many = outcome(ring(*leaves, shards=8, pattern=causal(), return_lse=True, backend="tiled"), leaves)
    assert many[0].dtype == many[2].dtype == torch.bfloat16 and many[1].dtype == torch.float32
    for found, plain, value in zip(many, one, wanted, strict=True):
        assert (found - value).norm() <= 1.5 * (plain - value).norm() + 1e-6 * value.norm()


# -- the schedule ------------------------------------------------------------------------------------------------------


@given(length=st.integers(1, 40), shards=st.integers(1, 6), order=st.sampled_from(ORDERS))
def test_every_token_has_one_rank_and_comes_back_to_its_place(length: int, shards: int, order: Any) -> None:
    schedule = RingSchedule(length, shards, order)
    held = torch.cat([schedule.tokens(rank) for rank in range(shards)])
    assert held.sort().values.tolist() == list(range(len(held)))
    assert len({len(schedule.tokens(rank)) for rank in range(shards)}) == 1
    assert len(held) - length < shards * len(schedule.chunks(0)), "no more padding than it takes"
    x = torch.randn(2, length, 3)
    assert torch.equal(schedule.join([schedule.shard(x, rank) for rank in range(shards)]), x)


def test_zigzag_has_an_early_and_a_late_chunk() -> None:
    schedule = RingSchedule(16, 4)
    assert [schedule.chunks(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert schedule.tokens(1).tolist() == [2, 3, 12, 13]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_every_rank_holds_every_shard_once_and_its_neighbors_next(shards: int) -> None:
    schedule = RingSchedule(20, shards)
    for rank in range(shards):
        assert sorted(schedule.owner(rank, step) for step in range(shards)) == list(range(shards))
        assert schedule.owner(rank, 0) == rank
        for step in range(shards - 1):
            assert schedule.owner((rank + 1) % shards, step + 1) == schedule.owner(rank, step), "what is passed on"


def problem(length: int, shards: int, order: Any, pattern: Pattern) -> RingProblem:
    schedule, layout = RingSchedule(length, shards, order), Layout.full(length)
    return RingProblem(schedule, schedule, layout, layout, pattern)


def imbalance(counts: Tensor) -> float:
    """The busiest rank's pairs over the mean."""
    return float(counts.sum(1).max() / counts.sum(1).double().mean())


@pytest.mark.parametrize("shards", [2, 4, 8])
def test_zigzag_balances_causal_work(shards: int) -> None:
    length = 64 * shards
    zigzag, contiguous = (pairs(problem(length, shards, order, causal())) for order in reversed(ORDERS))
    assert int(zigzag.sum()) == int(contiguous.sum()) == causal().pairs(length)
    assert imbalance(zigzag) <= 1.01
    assert imbalance(contiguous) == pytest.approx(2 - 1 / shards, abs=0.02)
    assert zigzag.max(0).values.sum() <= 1.1 * zigzag.double().mean(0).sum(), "balanced at every step, not just in sum"


TILE = 64  # rows and columns of scores that a kernel computes or skips together


def score_pairs(pattern: Pattern, layout: Layout, kv_layout: Layout) -> int:
    """The score pairs of the tiles that a kernel computes, those that the pattern hides in them included."""
    return int(block_map(pattern, layout, kv_layout, TILE, TILE).maybe.sum()) * TILE**2


@pytest.mark.parametrize("shards", [2, 4, 8])
@pytest.mark.parametrize(
    "pattern",
    [
        causal(),
        causal() & window(300),
        causal() & documents(),
        causal() | prefix(),
        causal() & (window(200) | sinks(4)),
    ],
    ids=str,
)
def test_the_ranks_together_compute_as_many_score_pairs_as_one(
    pattern: Pattern, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 1.02 times as many, and with causal attention the busiest rank at most 1.05 times the mean."""
    length = 4096
    lengths = [1500, 596, 2000] if documents() in parts_of(pattern) else [length]
    layout = Layout.packed([lengths], length)
    layout = layout.with_roles(4 * (layout.positions[..., 0] < 700).long())
    work: dict[int, int] = dict.fromkeys(range(shards), 0)

    def counted(self: RingProblem, rank: int, owner: int, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        work[rank] += score_pairs(self.pattern, self.q_layouts[rank], self.kv_layouts[owner])
        return q, q.new_zeros(*q.shape[:3]).transpose(1, 2)

    monkeypatch.setattr(RingProblem, "step", counted)
    x = torch.zeros(1, length, 1, 1)
    ring(x, x, x, shards=shards, pattern=pattern, layout=layout, kv_layout=layout)
    assert sum(work.values()) <= 1.02 * score_pairs(pattern, layout, layout)
    if pattern == causal():
        assert max(work.values()) <= 1.05 * sum(work.values()) / shards


def test_a_pattern_without_a_direction_is_balanced_either_way() -> None:
    for order in ORDERS:
        assert imbalance(pairs(problem(64, 4, order, full()))) == 1.0


def test_pairs_leave_out_padding() -> None:
    schedule, layout = RingSchedule(7, 2), Layout.from_lengths([7, 3])
    assert int(pairs(RingProblem(schedule, schedule, layout, layout, causal())).sum()) == 28 + 6


@pytest.mark.parametrize(
    "order, pattern, calls",
    [
        ("contiguous", causal(), 4 * 5 // 2),
        ("contiguous", causal() & window(4), 4 + 3),
        ("contiguous", full(), 16),
        ("zigzag", causal(), 16),
        ("zigzag", window(2), 4 + 2 * 3),
    ],
)
def test_steps_that_allow_nothing_are_skipped(
    order: Any, pattern: Pattern, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    monkeypatch.setattr(module, "attend", lambda *x, **options: (made.append(1), attend(*x, **options))[1])
    leaves = tensors(32)
    out = ring(*leaves, shards=4, order=order, pattern=pattern)
    assert len(made) == calls
    out.sum().backward()
    assert len(made) == 2 * calls, "nor computed again for backward"
    assert int((pairs(problem(32, 4, order, pattern)) > 0).sum()) == calls


# -- the ring ----------------------------------------------------------------------------------------------------------


class Threads:
    """One rank of a ring of threads: what another process would be."""

    def __init__(self, rank: int, boxes: list[queue.Queue[Any]]) -> None:
        self.size, self.ranks, self.boxes = len(boxes), [rank], boxes

    def send(self, parcels: list[list[Tensor]]) -> None:
        self.boxes[(self.ranks[0] + 1) % self.size].put([[x.clone() for x in parcel] for parcel in parcels])

    def receive(self) -> list[list[Tensor]]:
        return self.boxes[self.ranks[0]].get(timeout=20)


@pytest.mark.parametrize("order", ORDERS)
def test_ranks_that_see_only_their_own_shard(order: Any) -> None:
    """The program that is simulated is the program of each rank: only `send` and `receive` differ."""
    size, leaves = 3, tensors(14)
    given, weight = problem(14, size, order, causal() & window(9)), torch.randn(2, 14, HEADS, 3, dtype=torch.float64)
    boxes: list[queue.Queue[Any]] = [queue.Queue() for _ in range(size)]
    found: list[Any] = [None] * size

    def play(rank: int) -> None:
        mine = [given.queries.shard(x.detach(), rank).requires_grad_() for x in leaves]
        ((out, _),) = attend_shards(given, Threads(rank, boxes), *([x] for x in mine))
        (out * given.queries.shard(weight, rank)).sum().backward()
        found[rank] = [out.detach(), *(x.grad for x in mine)]

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out = attend(*leaves, pattern=given.pattern, backend="reference")
    wanted = [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]
    torch.testing.assert_close([given.queries.join(parts) for parts in zip(*found, strict=True)], wanted)


def test_keys_and_values_travel_one_step_less_than_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, ...]] = []
    send = OneProcess.send

    def spy(self: OneProcess, parcels: list[list[Tensor]]) -> None:
        sent.append(tuple(parcels[0][0].shape))
        send(self, parcels)

    monkeypatch.setattr(OneProcess, "send", spy)
    out = ring(*tensors(16), shards=4)
    assert sent == [(2, 4, 2, 4)] * 3, "a shard of keys, to each of the others"
    out.sum().backward()
    assert len(sent) == 3 + 3 + 4


def test_no_step_holds_all_pairs() -> None:
    """The largest allocation, forward and backward, is a shard's tile and not T × S."""
    n, shards = 1024, 4
    q, k, v = (torch.randn(1, n, 1, 8, requires_grad=True) for _ in range(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as made:
        ring(q, k, v, shards=shards, pattern=causal(), backend="tiled").sum().backward()
    largest = max(event.self_cpu_memory_usage for event in made.events())
    assert 4 * n * 8 <= largest <= 4 * (n // shards) ** 2


@pytest.mark.parametrize(
    "options, said",
    [
        ({"shards": 0}, "8 tokens can't be split over 0 shards: both must be at least 1"),
        ({"order": "zig-zag"}, "there is no order 'zig-zag'; did you mean 'zigzag'"),
        ({"dropout": 0.1}, "ring attention has no dropout of attention weights, and got 0.1; leave it at 0"),
        ({"layout": Layout.full(9)}, "layout is for 1 rows of 9 tokens, the tensor has 2 of 8"),
        ({"bias": torch.zeros(3, 8, 8)}, r"a bias of shape \(3, 8, 8\) does not broadcast"),
        ({"backend": "sdpa"}, "'sdpa' can't serve this request: .*log-sum-exp"),
        ({"softcap": -1.0}, "softcap is a positive number, not -1.0"),
    ],
)
def test_refusals_name_the_reason(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ring(*tensors(8), **{"shards": 2, **options})


def test_lengths_that_differ_need_layouts() -> None:
    with pytest.raises(ValueError, match=r"8 queries and 9 keys.*give layout= and kv_layout="):
        ring(*tensors(8, 9), shards=2, pattern=causal())


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    printed = capsys.readouterr().out
    assert printed == "contiguous 1.75\nzigzag 1.0\n"
    page = (Path(__file__).parents[4] / "docs" / "attention.md").read_text(encoding="utf-8")
    assert printed in page
