"""Measures by the length of the source."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv.look import attention_maps
from qkv.runs.compare.by_length import Alignment, ByLength
from qkv.runs.inference.run import Run


def test_bins_hold_each_length_once(run: Run) -> None:
    measure = ByLength(edges=(5, 9), examples=40)
    found = measure.bins([2, 4, 5, 8, 9, 12])
    assert found == [(3.0, [0, 1]), (6.5, [2, 3]), (10.5, [4, 5])]
    curve = measure(run)
    assert [0 <= y <= 100 for _, y in curve] == [True] * 3 and curve[0][0] < 5 <= curve[1][0] < 9 <= curve[2][0]
    assert ByLength(metric="bleu").y == "BLEU"


def test_the_summary_compares_short_and_long_sources() -> None:
    curves = {"fixed": [(5.0, 90.0), (25.0, 10.0)], "bahdanau": [(5.0, 100.0), (25.0, 99.0)]}
    assert ByLength().summary(curves) == [
        "bahdanau scores +10.0 relative to fixed on sources of about 5 tokens, and +89.0 on sources of about 25 tokens."
    ]


def test_alignment_counts_the_other_diagonal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that looks exactly where it should is right everywhere, and one that looks at the first token seldom."""

    def looking(where: Any) -> Any:
        def attention(model: Any, ids: torch.Tensor, fed: torch.Tensor, **rest: Any) -> list[Any]:
            weights = torch.zeros(1, 1, fed.shape[1], ids.shape[1])
            for t in range(fed.shape[1]):
                weights[0, 0, t, where(t, fed.shape[1])] = 1.0
            return [attention_maps.AttentionMap("decoder.cross", weights)]

        return attention

    monkeypatch.setattr("qkv.runs.compare.by_length.attention_maps.attention", looking(lambda t, n: n - 1 - t))
    assert [y for _, y in Alignment(edges=(5,))(run)] == [100.0, 100.0]
    monkeypatch.setattr("qkv.runs.compare.by_length.attention_maps.attention", looking(lambda t, n: 0))
    assert all(y < 60 for _, y in Alignment(edges=(5,))(run))
