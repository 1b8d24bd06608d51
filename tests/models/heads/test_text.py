"""The language model's head, its fused loss, and poolers."""

from __future__ import annotations

import pytest
import torch

from qkv.core.layout import Layout
from qkv.models.heads.text import LanguageModel, Pooler, PoolerModule, SequenceClassifier, Span, pool

M, V = 6, 11


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"scale": "rsqrt"}, {"softcap": 3.0, "bias": True}])
def test_logits_and_both_losses(options: dict) -> None:
    hidden, labels = torch.randn(2, 4, M, dtype=torch.float64, requires_grad=True), torch.randint(V, (2, 4))
    labels[0, 0] = -100
    results = []
    for fused in (True, False):
        torch.manual_seed(1)
        head = LanguageModel(tied=False, fused=fused, **options).module(M, V).double()
        for parameter in head.parameters():
            torch.nn.init.normal_(parameter)
        sums = head.loss(hidden, labels, 0.1)
        results.append((sums.loss, sums.nll, *torch.autograd.grad(sums.loss, [hidden, *head.parameters()])))
    torch.testing.assert_close(*results)
    z = hidden * (M**-0.5 if options.get("scale") else 1.0) @ head.weight.T
    z = z + head.bias if head.bias is not None else z
    torch.testing.assert_close(head(hidden), 3 * torch.tanh(z / 3) if options.get("softcap") else z)
    nll = -head(hidden).log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0][labels >= 0].sum()
    torch.testing.assert_close(results[0][1], nll.detach())


@pytest.mark.parametrize("tied, bias, expected", [(True, False, 0), (True, True, V), (False, True, V * M + V)])
def test_what_the_head_adds(tied: bool, bias: bool, expected: int) -> None:
    assert LanguageModel(tied=tied, bias=bias).cost(M, V, 3).parameters == expected
    assert LanguageModel().cost(M, V, 3).flops == 2 * V * M * 3


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
    module, hidden = PoolerModule(Pooler(), M), torch.randn(2, 3, M)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    assert module.dense is not None and module.dense.bias is not None
    expected = torch.tanh(hidden[:, 0] @ module.dense.weight.T + module.dense.bias)
    torch.testing.assert_close(module(hidden, Layout.full(3)), expected)
    assert Pooler().cost(M).parameters == M * M + M and Pooler(dense=False).cost(M).parameters == 0


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
