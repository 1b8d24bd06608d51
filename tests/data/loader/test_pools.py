"""Pools: the same batches whenever a pool is built, and the share of an epoch that they cover."""

from __future__ import annotations

import pickle

import numpy as np
from data_stand_in import Characters

from qkv.data.batching.settings import Batching
from qkv.data.loader.pools import Pools
from qkv.data.synthetic.copy_reverse_sort import Reverse


def pools(**settings: object) -> Pools:
    return Pools(Reverse(train=100), Characters(), Batching(tokens=200, pool=30, **settings), True, "train", seed=3)


def test_a_pool_is_a_function_of_its_numbers_also_in_another_process() -> None:
    first, other = pools(), pickle.loads(pickle.dumps(pools()))
    for a, b in zip(first.build(1, 2).cuts, other.build(1, 2).cuts, strict=True):
        assert all(np.array_equal(a.arrays[name], b.arrays[name]) for name in a.arrays)
    assert not np.array_equal(first.build(1, 2).cuts[0].arrays["ids"], first.build(2, 2).cuts[0].arrays["ids"])


def test_the_pools_of_an_epoch_are_all_examples() -> None:
    built = [pools().build(0, number) for number in range(pools().count(0))]
    assert len(built) == 4 and [pool.last for pool in built] == [False, False, False, True]
    assert sum(pool.counts.read for pool in built) == 100 and built[-1].length == 100
    assert [pools().passed(pool, len(pool.cuts)) for pool in built] == [0.3, 0.6, 0.9, 1.0]
