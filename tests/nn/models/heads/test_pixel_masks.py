"""A class for every pixel by a convolutional decoder: its equation, its costs, what it sees, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import qkv
from qkv.nn.layers.losses import cross_entropy
from qkv.nn.layers.patches import image_layout, masked_layout
from qkv.nn.models.heads.pixel_masks import PixelMasks
from qkv.nn.models.transformer import Transformer

SMALL = {"image": (16, 24), "patch": (8, 8), "channels": 2, "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}


def spec(*widths: int, **sizes: object) -> Transformer:
    made = qkv.preset("vit-base-16", **{**SMALL, **sizes})
    return made.replace({"head": PixelMasks(labels=3, widths=widths)})


def drawn(*widths: int, **sizes: object) -> qkv.TransformerModel:
    """A model whose every part shows, also if a norm would hide it."""
    model = qkv.build(spec(*widths, **sizes)).double().eval()
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator).double()
    return model


def by_the_equation(model: qkv.TransformerModel, pixels: Tensor) -> Tensor:
    """Two doublings, block by block."""
    head, side = model.head, model.head.finest
    hidden = model.hidden(pixels)[:, 1:].mT.reshape(len(pixels), 8, 2, 3)
    blocks = pixels.reshape(len(pixels), 2, 16 // side, side, 24 // side, side).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
    d0 = head.down[0](blocks)
    d1 = head.down[1](d0.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).amax((3, 5)))
    u1 = head.up[1](torch.cat([hidden.repeat_interleave(2, 2).repeat_interleave(2, 3), d1], 1))
    u0 = head.up[0](torch.cat([u1.repeat_interleave(2, 2).repeat_interleave(2, 3), d0], 1))
    scores = torch.einsum("bcyx,lc->blyx", u0, head.out.weight) + head.out.bias[:, None, None]
    parts = scores.reshape(len(pixels), 3, side, side, *scores.shape[2:])
    return parts.permute(0, 1, 4, 2, 5, 3).reshape(len(pixels), 3, 16, 24)


def test_scores_match_the_equation() -> None:
    model, pixels = drawn(4, 6), torch.randn(2, 2, 16, 24).double()
    torch.testing.assert_close(model(pixels), by_the_equation(model, pixels))


@pytest.mark.parametrize("widths", [(4,), (4, 6), (4, 6, 5)])
def test_it_is_counted_as_it_is_and_reads_other_sizes(widths: tuple[int, ...]) -> None:
    made = spec(*widths)
    assert Transformer.from_json(made.to_json()) == made
    model = qkv.build(made)
    assert made.n_parameters == sum(p.numel() for p in model.parameters())
    assert model(torch.randn(2, 2, 32, 16)).shape == (2, 3, 32, 16)
    hidden, pixels = torch.randn(1, 7, 8), torch.randn(1, 2, 16, 24)
    with FlopCounterMode(display=False) as counter:
        model.head(hidden, image_layout(made.encoder.embedding.grid), pixels)
    norms = made.head.cost_for(made, 7).flops - counter.get_total_flops()
    assert 0 < norms < 0.25 * made.head.cost_for(made, 7).flops


def test_the_loss_is_over_pixels_that_count() -> None:
    model, pixels = drawn(4, 6), torch.randn(2, 2, 16, 24).double()
    labels = torch.randint(3, (2, 16, 24), generator=torch.Generator().manual_seed(0))
    labels[0, :9] = -100
    sums, wanted = model(pixels, labels=labels), cross_entropy(model(pixels).movedim(1, -1), labels)
    torch.testing.assert_close(sums.loss, wanted.loss)
    assert int(sums.n_labels) == int((labels != -100).sum())


def test_edges_finer_than_a_patch_are_learned() -> None:
    """Thin lines, of which a patch has several: no score for a whole patch could say where they are."""
    torch.manual_seed(0)
    model = qkv.build(spec(8, 8, 8).replace({"initialization": "glorot"}))
    labels = (torch.rand(2, 16, 24) < 0.3).long()
    pixels = torch.stack([labels.float(), torch.randn(2, 16, 24)], 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        sums = model(pixels, labels=labels)
        optimizer.zero_grad()
        (sums.loss / sums.n_labels).backward()
        optimizer.step()
    assert (model(pixels).argmax(1) == labels).float().mean() > 0.97


def test_patches_that_it_does_not_lead_to_are_refused() -> None:
    with pytest.raises(ValueError, match="3 doublings lead from square patches whose side is divisible by 8"):
        spec(4, 4, 4, patch=(4, 4))
    with pytest.raises(ValueError, match="not from 4 × 8"):
        spec(4, patch=(4, 8))
    model = qkv.build(spec(4))
    with pytest.raises(ValueError, match="2 × 3 patches in 17 × 24 pixels"):
        model(torch.randn(1, 2, 17, 24))
    layout = masked_layout(model.spec.encoder.embedding.grid, torch.rand(1, 6), 0.5)
    with pytest.raises(ValueError, match="none hidden"):
        model(torch.randn(1, 2, 16, 24), layout=layout)
