"""Batching settings: pool sizes, and combinations that are rejected."""

from __future__ import annotations

import pytest

from qkv.data.batching.settings import Batching


def test_pools_of_fixed_pairs_grow_with_the_batches() -> None:
    assert Batching(tokens=4096).pool_size(pairs=True, fixed=True) == 8 * 4096
    assert Batching(tokens=1 << 20).pool_size(pairs=True, fixed=True) == 131_072
    assert Batching(tokens=4096).pool_size(pairs=False, fixed=True) == 8192
    assert Batching(tokens=4096).pool_size(pairs=True, fixed=False) == 8192
    assert Batching(pool=7).pool_size(pairs=True, fixed=True) == 7


def test_workers_are_a_number_or_auto() -> None:
    assert Batching().processes == 0 and Batching(workers=3).processes == 3
    with pytest.raises(ValueError, match="workers is a number of processes from 0, or 'auto', not -1"):
        Batching(workers=-1)


def test_a_row_must_fit_a_batch() -> None:
    Batching(tokens=512, max_length=256).check(seq2seq=True)
    with pytest.raises(ValueError, match=r"batches of 511 tokens can't hold a pair with max_length 256 \(512 slots\)"):
        Batching(tokens=511, max_length=256).check(seq2seq=True)
    with pytest.raises(ValueError, match="can't hold a row of context 600"):
        Batching(tokens=512, context=600).check(seq2seq=False)
    with pytest.raises(ValueError, match="raise context or lower max_length"):
        Batching(packing=True, context=64, max_length=65).check(seq2seq=True)
    with pytest.raises(ValueError, match="leave out packing or rows"):
        Batching(packing=True, rows="stream")
