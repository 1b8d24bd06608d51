"""Spans of answers."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.nn.models.heads.text import Span

M, V = 6, 11


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_span_is_one_of_the_real_tokens_of_its_row(side: str) -> None:
    head, lengths = Span().module(M, V), [2, 5, 3]
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    assert Span().cost(M, V).parameters == sum(p.numel() for p in head.parameters())
    hidden, labels = torch.randn(3, 5, M), torch.tensor([[0, 1], [4, 4], [1, -100]])
    shift = torch.tensor([0 if side == "right" else 5 - n for n in lengths])[:, None]
    layout = Layout.from_lengths(lengths, side=side)  # type: ignore[arg-type]
    sums = head.loss(hidden, torch.where(labels >= 0, labels + shift, labels), layout=layout)  # type: ignore[call-arg]
    expected = torch.zeros(())
    for row, n in enumerate(lengths):
        alone = hidden[row : row + 1, :n] if side == "right" else hidden[row : row + 1, 5 - n :]
        scores = head(alone, Layout.full(n))[0].T
        expected += torch.nn.functional.cross_entropy(scores, labels[row], reduction="sum")
    torch.testing.assert_close(sums.loss, expected)
    assert int(sums.n_labels) == 5
    with pytest.raises(ValueError, match=r"label_smoothing is 0.1"):
        head.loss(hidden, labels, 0.1, layout=layout)  # type: ignore[call-arg]
