"""Ranks as the rest of the library knows them: work in turns, and rows of a batch put together."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from qkv.core.ranks import ALONE, Alone, BatchSplit, concatenate, current, idle, in_turns, splitting


class Told(Alone):
    """A rank of several, which is told what the others answer."""

    def __init__(self, rank: int, size: int, others: list[Any]) -> None:
        self.rank, self.size, self.others = rank, size, iter(others)

    def gather(self, value: Any) -> list[Any]:
        given = list(next(self.others))
        given[self.rank] = value
        return given

    def sum(self, value: Tensor) -> Tensor:
        return value + torch.tensor(next(self.others))

    sum_with_gradient = sum


def test_each_rank_computes_every_nth_item_and_has_the_results_of_all() -> None:
    computed = []

    def compute(item: int) -> int:
        computed.append(item)
        return 10 * item

    ranks = Told(1, 3, [[0, None, 20], [30, None, None]])
    assert list(in_turns(ranks, range(4), compute)) == [(0, 0), (1, 10), (2, 20), (3, 30)]
    assert computed == [1]  # item 4 would have been its next
    assert list(in_turns(ALONE, "ab", str.upper)) == [("a", "A"), ("b", "B")]


def test_rows_of_all_ranks_are_in_the_order_of_the_ranks() -> None:
    rows = torch.tensor([[3.0], [4.0]])
    whole = [[1.0], [2.0], [0.0], [0.0], [5.0]]
    with splitting(BatchSplit(rows=Told(1, 3, [[2, 0, 1], whole]))):
        found, start = concatenate(rows)
    assert found.tolist() == [[1.0], [2.0], [3.0], [4.0], [5.0]] and start == 2
    assert concatenate(rows)[0] is rows


def test_an_idle_rank_adds_no_rows() -> None:
    with splitting(BatchSplit(rows=Told(1, 2, [[2, 0], [[1.0], [2.0]]]), idle=True)):
        found, start = concatenate(torch.tensor([[9.0]]))
        assert idle()
    assert found.tolist() == [[1.0], [2.0]] and start == 2 and not idle()


def test_a_split_ends_with_its_block_even_after_an_error() -> None:
    peers = Told(0, 2, [])
    with pytest.raises(KeyError), splitting(BatchSplit(peers=peers)):
        assert current() is peers
        raise KeyError
    assert current() is ALONE
