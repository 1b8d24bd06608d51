"""Caches that evict by attention: what they refuse."""

from __future__ import annotations

import pytest
from kv_caches import started

from qkv.nn.kv_cache.kinds import CacheKind, SinkCache, named


@pytest.mark.parametrize("how", [SinkCache(), named("h2o"), named("snapkv")], ids=str)
def test_caches_that_evict_remove_no_tokens_of_single_rows(how: CacheKind) -> None:
    with pytest.raises(ValueError, match=r"can't remove tokens.*; use a full cache"):
        started(how).check_rewind_rows()
