"""Spearman's and Pearson's correlations, compared with SciPy; NaN and constant values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.core.metrics.correlation import correlations


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=3, max_size=30))
def test_correlations_are_scipys(pairs: list[tuple[int, int]]) -> None:
    from scipy.stats import pearsonr, spearmanr

    a, b = (list(map(float, side)) for side in zip(*pairs, strict=True))
    found = correlations(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found["spearman"].value == found["pearson"].value == 0
    else:
        assert found["spearman"].value == pytest.approx(spearmanr(a, b).statistic, abs=1e-9)
        assert found["pearson"].value == pytest.approx(pearsonr(a, b).statistic, abs=1e-9)
