"""Heads for whole sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qkv import preset
from qkv.core.layout import Layout
from qkv.nn.models.heads.sequence import SequenceClassifier, pool

M, V = 6, 11
SMALL: dict[str, Any] = {"vocab_size": V, "d_model": M, "n_layers": 1, "n_heads": 1, "d_ff": 4, "max_positions": 8}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("method", ["mean", "max", "first", "last"])
def test_pooling_counts_real_tokens_only(method: str, side: str) -> None:
    hidden, lengths = torch.randn(3, 5, M), [2, 5, 1]
    pooled = pool(hidden, Layout.from_lengths(lengths, side=side), method)  # type: ignore[arg-type]
    for row, n in enumerate(lengths):
        real = hidden[row, :n] if side == "right" else hidden[row, 5 - n :]
        expected = {"mean": real.mean(0), "max": real.amax(0), "first": real[0], "last": real[-1]}[method]
        torch.testing.assert_close(pooled[row], expected)


def test_pooling_an_empty_row_is_no_nan_and_a_wrong_method_is_named() -> None:
    for method in ("mean", "max"):
        assert pool(torch.randn(2, 3, M), Layout.from_lengths([0, 3]), method)[0].count_nonzero() == 0
    with pytest.raises(ValueError, match="pooling is mean, max, first or last, not 'min'"):
        pool(torch.randn(2, 3, M), Layout.full(3), "min")


def test_the_dense_pooler_is_berts() -> None:
    spec = SequenceClassifier(labels=None)
    module, hidden = spec.module(M), torch.randn(2, 3, M)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert module.dense is not None and module.dense.bias is not None
    expected = torch.tanh(hidden[:, 0] @ module.dense.weight.T + module.dense.bias)
    torch.testing.assert_close(module(hidden, Layout.full(3)), expected)
    torch.testing.assert_close(module.pooled(hidden, Layout.full(3)), expected)
    assert spec.cost(M).parameters == M * M + M
    assert SequenceClassifier(labels=None, activation=None).cost(M).parameters == 0
    with pytest.raises(ValueError, match="vectors of texts have no labels"):
        module.loss(hidden, torch.zeros(2, dtype=torch.int64), layout=Layout.full(3))


@pytest.mark.parametrize("activation", ["tanh", "relu", None])
@pytest.mark.parametrize("method", ["first", "last"])
def test_a_classifier_of_sequences_reads_one_real_token(method: str, activation: str | None) -> None:
    spec = SequenceClassifier(labels=3, pool=method, activation=activation, bias=method == "first")  # type: ignore[arg-type]
    head = spec.module(M, V)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    assert spec.cost(M, V).parameters == sum(p.numel() for p in head.parameters())
    hidden, lengths = torch.randn(3, 5, M), [2, 5, 1]
    scores = {side: head(hidden, Layout.from_lengths(lengths, side=side)) for side in ("left", "right")}  # type: ignore[arg-type]
    for row, n in enumerate(lengths):
        for side, found in scores.items():
            alone = hidden[row : row + 1, :n] if side == "right" else hidden[row : row + 1, 5 - n :]
            torch.testing.assert_close(found[row : row + 1], head(alone, Layout.full(n)))


def test_a_classifier_of_sequences_takes_classes_with_smoothing() -> None:
    head, hidden, layout = SequenceClassifier(labels=3).module(M, V), torch.randn(4, 5, M), Layout.full(5)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter)
    labels = torch.tensor([2, -100, 0, 1])
    sums = head.loss(hidden, labels, 0.1, layout=layout)  # type: ignore[call-arg]
    expected = torch.nn.functional.cross_entropy(head(hidden, layout), labels, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(sums.loss, expected)
    assert int(sums.n_labels) == 3


def test_a_classifier_without_what_it_reads_is_refused() -> None:
    with pytest.raises(ValueError, match="labels=2: the classifier of sequences reads what a pooler gives"):
        preset("bert-base", **SMALL, pooler=False, labels=2)
