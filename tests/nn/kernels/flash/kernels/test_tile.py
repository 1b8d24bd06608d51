"""Tiles of scores: dropout by seed and place, and NaN for the queries that see it."""

from __future__ import annotations

import flash_worker
import pytest
from flash_remote import Remote, needs_triton


@needs_triton
def test_dropout_follows_the_seed_and_differs_everywhere_else(there: Remote) -> None:
    same, as_elsewhere, *others = there(flash_worker.dropout_masks)
    assert same == as_elsewhere == 1.0
    assert others == pytest.approx([0.5] * 3, abs=0.04)


@needs_triton
def test_nan_reaches_those_who_see_it_and_no_others(there: Remote) -> None:
    found = there(flash_worker.poisoned)
    assert all(found.values()), found
