"""Masked tokens are 0, and the others scaled for their number: alone, padded and packed."""

from __future__ import annotations

import torch

import qkv
from qkv.core.layout import Layout
from qkv.nn.layers.mask_scaled import MaskScaledEmbedding

MASK = 5


def test_the_share_of_masked_tokens_is_each_texts_own() -> None:
    module = MaskScaledEmbedding(mask_id=MASK).module(9, 4)
    torch.nn.init.normal_(module.weight)
    first, second = torch.tensor([[1, MASK, 2, 3]]), torch.tensor([[4, 7]])
    x = module(first, None, layout=Layout.full(4))
    assert torch.equal(x[0, 1], torch.zeros(4))
    torch.testing.assert_close(x[0, 2], module.weight[2] * (1 - 0.12) / (1 - 1 / 4))
    y = module(second, None, layout=Layout.full(2))
    torch.testing.assert_close(y[0], module.weight[[4, 7]] * (1 - 0.12))
    padded = torch.tensor([[1, MASK, 2, 3], [4, 7, MASK, MASK]])
    both = module(padded, None, layout=Layout.from_lengths([4, 2]))
    torch.testing.assert_close(both[0], x[0])
    torch.testing.assert_close(both[1, :2], y[0])
    packed = module(torch.cat([first, second], 1), None, layout=Layout.packed([[4, 2]]))
    torch.testing.assert_close(packed, torch.cat([x, y], 1))


def test_a_text_of_masks_alone_is_zero() -> None:
    module = MaskScaledEmbedding(mask_id=MASK).module(9, 4)
    torch.nn.init.normal_(module.weight)
    x = module(torch.full((1, 3), MASK), None, layout=Layout.full(3))
    assert torch.equal(x, torch.zeros(1, 3, 4))


def test_a_model_with_it_trains_and_goes_through_json() -> None:
    spec = qkv.preset("esm2-8m", vocab_size=9, d_model=16, n_layers=1, n_heads=2, d_ff=16, mask_id=MASK)
    assert type(spec).from_json(spec.to_json()) == spec
    model, ids = qkv.build(spec), torch.tensor([[1, MASK, 2]])
    model(ids, labels=ids).loss.backward()
    grad = model.encoder.embedding.weight.grad
    assert torch.isfinite(grad).all() and spec.n_parameters == sum(p.numel() for p in model.parameters())
