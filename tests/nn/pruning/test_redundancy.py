"""Redundancy of heads: linear CKA against its definition by matrices of tokens, and PCA against a singular value
decomposition."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import qkv
from qkv.core.batch import Batch
from qkv.core.layout import Layout
from qkv.nn.activations import record
from qkv.nn.pruning.redundancy import covered, head_outputs, linear_cka, redundancy
from qkv.nn.pruning.units import attention_layers


def unit_similarities(heads: list[Tensor]) -> Tensor:
    """The centered similarity of tokens of each head, X Xᵀ, as a unit vector: (H, N²)."""
    n = len(heads[0])
    center = torch.eye(n, dtype=torch.float64) - 1 / n
    grams = [center @ x.double() @ x.double().T @ center for x in heads]
    return torch.stack([(gram / gram.norm()).flatten() for gram in grams])


def test_cka_is_the_cosine_of_similarities_of_tokens():
    outputs = [torch.randn(40, 3, 5), torch.randn(40, 2, 4)]
    outputs[1][:, 1] = outputs[0][:, 0, :4] + 0.3 * torch.randn(40, 4)
    flat = unit_similarities([x[:, h] for x in outputs for h in range(x.shape[1])])
    torch.testing.assert_close(linear_cka(outputs), flat @ flat.T)


def test_rotated_and_scaled_outputs_are_the_same_and_dead_heads_are_alone():
    x, turn = torch.randn(50, 1, 6), torch.linalg.qr(torch.randn(6, 6))[0]
    similarity = linear_cka([torch.cat([x, 3 * x @ turn + 1, torch.ones_like(x)], 1)])
    expected = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(similarity, expected)
    torch.testing.assert_close(covered(similarity), torch.tensor([2 / 3, 1, 1], dtype=torch.float64))


def test_covered_variance_is_that_of_principal_components():
    heads = [torch.randn(30, 5) for _ in range(4)]
    similarity = linear_cka([torch.stack(heads, 1)])
    variances = torch.linalg.svdvals(unit_similarities(heads)).square()
    torch.testing.assert_close(covered(similarity), variances.cumsum(0) / variances.sum())


def test_outputs_are_those_of_tokens_without_padding():
    model = qkv.build(qkv.preset("gpt2", vocab_size=20, d_model=16, n_heads=2, n_layers=2)).eval()
    ids, layout = torch.randint(20, (2, 6)), Layout.from_lengths(torch.tensor([6, 4]), 6)
    batch = Batch(inputs={"ids": ids, "layout": layout}, labels=ids, counts={}, tokens=10)

    def loss(model: nn.Module, batch: Batch) -> object:
        return model(**batch.inputs)

    layers = attention_layers(model)
    read = head_outputs(model, [batch], loss, layers)
    with torch.no_grad(), record(model, "decoder.layers.1.attention.heads") as seen:
        model(ids[1:, :4])
    assert {name: x.shape for name, x in read.items()} == dict.fromkeys(("decoder.0", "decoder.1"), (10, 2, 8))
    torch.testing.assert_close(read["decoder.1"][6:], seen["decoder.layers.1.attention.heads"][0])
    assert len(head_outputs(model, [batch, batch], loss, layers, limit=7)["decoder.0"]) == 7
    found = redundancy(model, [batch], loss, layers)["decoder"]
    assert found.heads == ["0.0", "0.1", "1.0", "1.1"] and found.tokens == 10
    best = max((found.similarity[i][j], i, j) for i in range(4) for j in range(i + 1, 4))
    assert found.most_alike(1) == [(found.heads[best[1]], found.heads[best[2]], best[0])]
    assert found.needed(1.0) <= 4 and found.covered[found.needed(0.9) - 1] >= 0.9
    assert found.needed(0.0) == 1
