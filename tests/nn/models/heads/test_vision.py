"""Models of images: every head is counted, saved as JSON, takes other sizes and learns; masked patches alone are judged."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from qkv.core.layout import Grid
from qkv.nn.attention.multi_head import Attention
from qkv.nn.layers.feedforward import FeedForward
from qkv.nn.layers.patches import GridPosition, Patches, States, image_layout, masked_layout, patchify
from qkv.nn.models.block import Block
from qkv.nn.models.build import build
from qkv.nn.models.heads.base import Head
from qkv.nn.models.heads.pixel_masks import PixelMasks
from qkv.nn.models.heads.vision import Detector, ImageClassifier, MaskTokens, Objects, PixelDecoder
from qkv.nn.models.stack import Stack
from qkv.nn.models.transformer import Transformer

GRID = Grid(4, 6, 1, 0)
BLOCK = Block(attention=Attention(n_heads=2), feedforward=FeedForward(d_ff=24))


def states(grid: Grid | None = None) -> Stack:
    position = "none" if grid is None else {"kind": "grid", "table": "sinusoidal"}
    block = Block(attention=Attention(n_heads=2), feedforward=FeedForward(d_ff=8))
    return Stack(embedding=States(of=grid), position=position, blocks=(block,))


def image_model(
    head: Head | None,
    before: int = 1,
    after: int = 0,
    position: str | GridPosition = "grid",
    stem: tuple[int, ...] = (),
) -> Transformer:
    embedding = Patches(image=(16, 24), patch=(4, 4), before=before, after=after, stem=stem)
    return Transformer(
        d_model=16, encoder=Stack(embedding=embedding, position=position, blocks=(BLOCK,) * 2), head=head
    )


PIXELS = PixelDecoder(width=8, decoder=states(GRID), patch=(4, 4))
MODELS = {
    "class token": image_model(ImageClassifier(labels=5)),
    "mean": image_model(ImageClassifier(labels=5, pool="mean"), position="sinusoidal"),
    "distilled": image_model(ImageClassifier(labels=5, distilled=True), before=2),
    "pixels": image_model(PIXELS),
    "masks": image_model(MaskTokens(labels=4, width=8, decoder=states())),
    "standardized": image_model(ImageClassifier(labels=5, standardized=True)),
    "masks of pixels": image_model(PixelMasks(labels=4, widths=(6, 5))),
    "objects": image_model(Detector(labels=3), after=5),
    "objects near patches, a stem": image_model(Detector(labels=3, proposals="patches"), stem=(4, 6)),
    "objects, positions between blocks": image_model(Detector(labels=3), after=5, position=GridPosition(between=True)),
    "no head": image_model(None),
}


@pytest.mark.parametrize("spec", MODELS.values(), ids=MODELS)
def test_counted_saved_and_run_on_other_sizes(spec: Transformer) -> None:
    model = build(spec, seed=0)
    assert spec.n_parameters == sum(p.numel() for p in model.parameters())
    assert Transformer.from_json(spec.to_json()) == spec
    for size in ((16, 24), (32, 24)):
        out = model(torch.randn(2, 3, *size))
        for tensor in out if isinstance(out, Objects) else (out,):
            assert tensor.shape[0] == 2 and tensor.isfinite().all()


MASKS = (torch.arange(24).view(4, 6) % 4).repeat_interleave(4, 0).repeat_interleave(4, 1).expand(2, -1, -1)
CLASSES = torch.tensor([1, 4])
LABELS = {"class token": CLASSES, "standardized": CLASSES} | dict.fromkeys(("masks", "masks of pixels"), MASKS)


@pytest.mark.parametrize("name", ["class token", "standardized", "masks", "masks of pixels", "pixels"])
def test_each_head_learns(name: str) -> None:
    torch.manual_seed(0)
    model, pixels = build(MODELS[name], seed=0), torch.randn(2, 3, 16, 24)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        sums = model(pixels, labels=LABELS.get(name, pixels))
        losses.append(sums.loss.item() / int(sums.n_labels))
        optimizer.zero_grad()
        sums.loss.backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def test_hidden_patches_alone_are_judged() -> None:
    model, pixels = build(MODELS["pixels"], seed=0), torch.randn(2, 3, 16, 24)
    layout = masked_layout(GRID, torch.rand(2, 24), 0.75)
    sums = model(pixels, layout=layout, labels=pixels)
    assert int(sums.n_labels) == 2 * 18
    made, wanted = model(pixels, layout=layout), patchify(pixels, (4, 4), "last")
    error = (made - wanted).square().mean(-1)
    shown = torch.zeros(2, 24, dtype=torch.bool).scatter(1, layout.positions[:, 1:, 0] - 1, True)
    torch.testing.assert_close(sums.loss, error[~shown].sum())


def test_what_is_hidden_is_not_seen() -> None:
    model = build(MODELS["pixels"], seed=0).eval()
    noise = torch.rand(1, 24)
    layout = masked_layout(GRID, noise, 0.75)
    pixels = torch.randn(1, 3, 16, 24)
    hidden = int(noise[0].argmax())
    other = pixels.clone()
    row, column = 4 * (hidden // 6), 4 * (hidden % 6)
    other[:, :, row : row + 4, column : column + 4] += 1.0
    assert torch.equal(model(pixels, layout=layout), model(other, layout=layout))


def test_masks_are_cosines_normed_over_the_classes() -> None:
    model = build(MODELS["masks"], seed=0).double().eval()
    pixels = torch.randn(1, 3, 16, 24).double()
    kept: list[Tensor] = []
    handle = model.head.decoder.register_forward_hook(lambda m, i, o: kept.append(o))
    out = model(pixels)
    handle.remove()
    patches, classes = kept[0][:, :24], kept[0][:, 24:]
    p, c = patches @ model.head.of_patches.weight.T, classes @ model.head.of_classes.weight.T
    cosines = torch.einsum("bnw,bcw->bnc", p / p.norm(dim=-1, keepdim=True), c / c.norm(dim=-1, keepdim=True))
    expected = F.layer_norm(cosines, (4,), model.head.norm.weight, model.head.norm.bias)
    torch.testing.assert_close(out, expected.mT.reshape(1, 4, 4, 6))


def test_every_further_block_is_given_separate_positions() -> None:
    model = build(MODELS["objects, positions between blocks"], seed=0).eval()
    pixels, seen = torch.randn(1, 3, 16, 24), {}
    for i, block in enumerate(model.encoder.blocks):
        block.register_forward_hook(lambda m, given, out, i=i: seen.update({i: (given[0], out)}))
    model(pixels)
    (table,) = model.encoder.between
    torch.testing.assert_close(seen[1][0], seen[0][1] + table.weight)
    assert not torch.equal(table.weight, model.encoder.position.weight)
    larger = Grid(8, 6, 1, 5)
    assert table.embed(image_layout(larger)).shape == (1, larger.tokens, 16)


# -- objects near their patches ------------------------------------------------------------------------------------------


def test_a_patch_proposes_a_box_around_its_own_middle() -> None:
    model = build(MODELS["objects near patches, a stem"], seed=0).eval()
    last = model.head.boxes.layers[-1]
    last.weight.data.zero_()
    boxes = model(torch.randn(2, 3, 16, 24)).boxes
    middles = torch.tensor([[(c + 0.5) / 6, (r + 0.5) / 4] for r in range(4) for c in range(6)])
    torch.testing.assert_close(boxes, torch.cat([middles, torch.full((24, 2), 0.1)], 1).expand(2, -1, -1))
    last.bias.data[0] = 0.5  # to the right of it, all alike on the scale of σ⁻¹
    moved = model(torch.randn(2, 3, 32, 24)).boxes
    torch.testing.assert_close(moved[..., 0].logit() - 0.5, middles[:, 0].repeat(2).logit().expand(2, -1))


@pytest.mark.parametrize("name", ["objects", "objects near patches, a stem"])
def test_detections_are_as_many_as_say_so(name: str) -> None:
    model = build(MODELS[name], seed=0)
    found = model(torch.randn(2, 3, 16, 24))
    assert found.logits.shape == (2, 5 if name == "objects" else 24, 4) and found.boxes.shape[2] == 4
    assert ((found.boxes > 0) & (found.boxes < 1)).all()


def test_a_detector_without_detections_is_told() -> None:
    with pytest.raises(ValueError, match="give patches some `after` them, or take their proposals"):
        image_model(Detector(labels=3))


# -- what a linear probe reads -------------------------------------------------------------------------------------------


def test_standardized_states_have_mean_0_and_variance_1_whatever_the_stack_gives() -> None:
    model, pixels = build(MODELS["standardized"], seed=0), torch.randn(64, 3, 16, 24)
    seen: list[Tensor] = []
    model.head.out.register_forward_hook(lambda m, given, out: seen.append(given[0]))
    model.train()
    for _ in range(60):
        model(pixels)
    model.eval()
    model(pixels)
    for x in (seen[0], seen[-1]):
        torch.testing.assert_close(x.mean(0), torch.zeros(16), atol=2e-2, rtol=0)
        torch.testing.assert_close(x.std(0), torch.ones(16), atol=3e-2, rtol=0)
    assert {"head.norm.mean", "head.norm.variance"} < model.state_dict().keys() and not list(
        model.head.norm.parameters()
    )


def test_a_batch_of_one_picture_is_learned_by_what_others_gave() -> None:
    model = build(MODELS["standardized"], seed=0).train()
    sums = model(torch.randn(1, 3, 16, 24), labels=CLASSES[:1])
    assert sums.loss.isfinite() and torch.equal(model.head.norm.variance, torch.ones(16))


# -- shares of classes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["class token", "distilled"])
@pytest.mark.parametrize(("smoothing", "z_loss"), [(0.0, 0.0), (0.1, 1e-2)])
def test_shares_of_one_class_cost_what_the_class_costs(name: str, smoothing: float, z_loss: float) -> None:
    model, pixels = build(MODELS[name], seed=0), torch.randn(2, 3, 16, 24)
    labels = torch.tensor([1, 4])
    for one, other in zip(
        model(pixels, labels=labels, label_smoothing=smoothing, z_loss=z_loss)[:3],
        model(pixels, labels=F.one_hot(labels, 5).float(), label_smoothing=smoothing, z_loss=z_loss)[:3],
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_shares_weigh_the_losses_of_their_classes() -> None:
    model, pixels = build(MODELS["class token"], seed=0), torch.randn(2, 3, 16, 24)
    losses = [model(pixels, labels=torch.tensor(pair)).loss for pair in ([0, 0], [3, 3])]
    mixed = torch.tensor([[0.3, 0.0, 0.0, 0.7, 0.0]] * 2)
    torch.testing.assert_close(model(pixels, labels=mixed).loss, 0.3 * losses[0] + 0.7 * losses[1])


def test_shares_of_other_classes_are_refused() -> None:
    model = build(MODELS["class token"], seed=0)
    with pytest.raises(ValueError, match=r"here \(2, 5\), not \(2, 4\)"):
        model(torch.randn(2, 3, 16, 24), labels=torch.ones(2, 4))
