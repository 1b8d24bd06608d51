from __future__ import annotations

import pytest
import torch

import qkv
from qkv.nn.layers.losses import cross_entropy
from qkv.nn.layers.patches import image_layout


def model(**sizes: object) -> qkv.TransformerModel:
    small = {"image": (16, 24), "patch": (8, 8), "channels": 1, "d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 8}
    return qkv.build(qkv.preset("segmenter-tiny", labels=3, **{**small, **sizes})).eval()


def test_scores_match_the_papers_equation() -> None:
    made, pixels = model(scale=2.5), torch.rand(2, 1, 16, 24)
    head, layout = made.head, image_layout(made.spec.encoder.embedding.grid)
    hidden = made.hidden(pixels)
    x = torch.cat([head.project(hidden[:, 1:]), head.classes.expand(2, -1, -1)], 1)
    x = head.decoder(x, qkv.Layout.full(9))
    patches, classes = x[:, :6] @ head.of_patches.weight.T, x[:, 6:] @ head.of_classes.weight.T
    alike = torch.einsum(
        "bnw,bkw->bnk", patches / patches.norm(dim=-1, keepdim=True), classes / classes.norm(dim=-1, keepdim=True)
    )
    mean, var = alike.mean(-1, keepdim=True), alike.var(-1, correction=0, keepdim=True)
    wanted = 2.5 * (alike - mean) / (var + 1e-5).sqrt()  # as it begins, with a gain of 1 and no shift
    torch.testing.assert_close(head(hidden, layout), wanted.mT.reshape(2, 3, 2, 3), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("finer", [1, 2, 4])
def test_finer_scores_stand_where_their_part_of_the_patch_is(finer: int) -> None:
    made = model(finer=finer)
    pixels = torch.rand(2, 1, 16, 24)
    scores = made(pixels)
    assert scores.shape == (2, 3, 2 * finer, 3 * finer)
    assert made.spec.n_parameters == sum(p.numel() for p in made.parameters())
    hidden = made.hidden(pixels)
    x = made.head.decoder(
        torch.cat([made.head.project(hidden[:, 1:]), made.head.classes.expand(2, -1, -1)], 1), qkv.Layout.full(9)
    )
    parts = made.head.of_patches(x[:, :6]).reshape(2, 2, 3, finer, finer, 8)
    classes = torch.nn.functional.normalize(made.head.of_classes(x[:, 6:]), dim=-1)
    one = torch.nn.functional.normalize(parts[1, 1, 2, finer - 1, 0], dim=-1)
    wanted = made.head.norm(classes[1] @ one)
    torch.testing.assert_close(scores[1, :, 2 * finer - 1, 2 * finer], wanted, atol=1e-4, rtol=1e-4)


def test_the_loss_is_over_pixels_that_count() -> None:
    made, pixels = model(finer=2), torch.rand(2, 1, 16, 24)
    labels = torch.randint(3, (2, 16, 24))
    labels[0, :9] = -100
    wide = torch.nn.functional.interpolate(made(pixels), size=(16, 24), mode="bilinear", align_corners=False)
    sums = made(pixels, labels=labels)
    wanted = cross_entropy(wide.movedim(1, -1), labels)
    torch.testing.assert_close(sums.loss, wanted.loss)
    assert int(sums.n_labels) == int((labels != -100).sum())
