"""Positions over axes: what Qwen2-VL's paper says, in batches, packed rows and caches."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

import qkv
from qkv.core.layout import Layout
from qkv.nn.layers.patches import Patches
from qkv.nn.models.joint import Medium, Tower, with_media
from qkv.nn.models.transformer import TransformerModel
from qkv.nn.positions.axes import AxialRotary, AxisGrid, MultimodalRotary, over_axes
from qkv.nn.positions.base import Widths
from qkv.nn.positions.rotary import Rotary

IMAGE, VIDEO = 9, 8
SIZES: dict[str, Any] = {"d_model": 24, "n_layers": 2, "n_heads": 2, "d_ff": 32}
ROWS = [[1, *[IMAGE] * 6, 2, *[VIDEO] * 4, 3], [4, 5, *[IMAGE] * 2, 6]]


def test_text_continues_after_the_larger_side_of_a_picture_and_a_video_counts_time() -> None:
    numbers = torch.tensor([[0, 1, 1, 1, 1, 1, 1, 0, 2, 2, 2, 2, 0]])
    grids = [AxisGrid(1, 2, 3), AxisGrid(2, 1, 2, interval=2.5)]
    layout = over_axes(Layout.full(13), numbers, grids, [6, 4])
    index, time, row, column = layout.positions[0].unbind(-1)
    assert index.tolist() == list(range(13))
    assert time.tolist() == [0, 1, 1, 1, 1, 1, 1, 4, 5, 5, 7, 7, 7]
    assert row.tolist() == [0, 1, 1, 1, 2, 2, 2, 4, 5, 5, 5, 5, 7]
    assert column.tolist() == [0, 1, 2, 3, 1, 2, 3, 4, 5, 6, 5, 6, 7]


def test_pairs_turn_by_their_sections_axis() -> None:
    assert MultimodalRotary(sections=(1, 2, 1)).axis_of_pairs(4) == [0, 1, 1, 2]
    interleaved = MultimodalRotary(sections=(4, 2, 2), arrangement="interleaved")
    assert interleaved.axis_of_pairs(8) == [0, 1, 2, 0, 1, 2, 0, 0]
    assert MultimodalRotary().axis_of_pairs(64) == [0] * 16 + [1] * 24 + [2] * 24
    with pytest.raises(ValueError, match=r"the sections \[1, 1, 1\] of M-RoPE are for 3 pairs .* heads have 4"):
        MultimodalRotary(sections=(1, 1, 1)).axis_of_pairs(4)


def test_text_is_rotated_as_by_rotary() -> None:
    widths, x = Widths(16, 2, 8, None), torch.randn(1, 7, 2, 8)
    turned = [p.module(widths) for p in (Rotary(), MultimodalRotary())]
    layout = Layout.full(7)
    one, other = (module.rotate(x, module.tables(layout) or ()) for module in turned)
    assert torch.equal(one, other)


def test_in_a_picture_scores_depend_on_the_distance_in_rows_and_columns() -> None:
    module = AxialRotary().module(Widths(16, 2, 8, None))
    layout = Patches(image=(8, 8), patch=(2, 2), before=0).module(0, 8).lay(torch.zeros(1, 3, 8, 8), None)[1]
    vector = torch.randn(1, 1, 1, 8).expand(1, 16, 1, 8)
    turned = module.rotate(vector, module.tables(layout) or ())[0, :, 0]
    scores = (turned @ turned.T).view(4, 4, 4, 4)
    torch.testing.assert_close(scores[0, 0, 1, 2], scores[2, 1, 3, 3])
    assert not torch.isclose(scores[0, 0, 1, 2], scores[0, 0, 2, 1])


@pytest.fixture(scope="module", params=["blocks", "interleaved"])
def model(request: pytest.FixtureRequest) -> TransformerModel:
    vit = qkv.preset("vit-base-16", image=(8, 8), patch=(2, 2), channels=6, before=0, **SIZES, head=False)
    stack = vit.encoder.replace({"position": AxialRotary(), "embedding.image": (4, 6)})
    tower = Tower(stack=stack, width=24, frames=2)
    spec = qkv.preset(
        "llama", vocab_size=31, max_positions=64, position=MultimodalRotary(arrangement=request.param), **SIZES
    )
    joint = with_media(spec, Medium(name="image", token=IMAGE, video=VIDEO, reads=tower))
    built = qkv.build(joint, dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(5)
    return built


def media() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = [(3, 4, 6), (4, 3, 2, 4), (3, 2, 4)]  # 2 × 3 patches, 2 × (1 × 2) of a video, 1 × 2
    return [torch.randn(*size, generator=generator, dtype=torch.float64) for size in sizes]


@torch.no_grad()
def alone(model: TransformerModel) -> list[Tensor]:
    clips = media()
    return [model(torch.tensor([row]), media={"image": clips[i * 2 : i * 2 + 2]})[0] for i, row in enumerate(ROWS)]


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_equals_alone(model: TransformerModel, side: Any) -> None:
    layout = Layout.from_lengths([len(row) for row in ROWS], side=side)
    ids = torch.zeros(layout.shape, dtype=torch.int64)
    ids[layout.valid] = torch.tensor([*chain(*ROWS)])
    out = model(ids, layout=layout, media={"image": media()})
    for row, each in enumerate(alone(model)):
        torch.testing.assert_close(out[row][layout.valid[row]], each, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_packed_equals_separate(model: TransformerModel) -> None:
    ids, layout = torch.tensor([[*chain(*ROWS)]]), Layout.packed([[len(row) for row in ROWS]])
    out = model(ids, layout=layout, media={"image": media()})
    torch.testing.assert_close(out[0], torch.cat(alone(model)), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_prompts_are_continued_at_the_right_positions(model: TransformerModel) -> None:
    layout = Layout.from_lengths([len(row) for row in ROWS], side="left")
    ids = torch.zeros(layout.shape, dtype=torch.int64)
    ids[layout.valid] = torch.tensor([*chain(*ROWS)])
    clips, following = media(), [[13, 14, 15], [16, 17, 18]]
    cache = model.start(2)
    steps = [model.step(ids, cache, layout, media={"image": clips})]
    cache.reorder(torch.tensor([0, 1]))
    steps += [model.step(torch.tensor(following)[:, i : i + 1], cache) for i in range(3)]
    for row, prompt in enumerate(ROWS):
        whole = model(torch.tensor([[*prompt, *following[row]]]), media={"image": clips[row * 2 : row * 2 + 2]})
        torch.testing.assert_close(torch.stack(steps, 1)[row], whole[0, -4:], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_pictures_after_a_text_in_a_cache_and_steps_taken_back(model: TransformerModel) -> None:
    whole = alone(model)[0][-1]
    cache = model.start(1)
    model.step(torch.tensor([[1]]), cache)
    model.step(torch.tensor([[30, 29]]), cache)
    cache.rewind(2)
    model.step(torch.tensor([ROWS[0][1:-1]]), cache, media={"image": media()[:2]})
    model.step(torch.tensor([[7, 11]]), cache)
    cache.rewind(2)
    torch.testing.assert_close(model.step(torch.tensor([ROWS[0][-1:]]), cache)[0], whole, rtol=1e-9, atol=1e-9)


def test_a_cache_that_renumbers_tokens_refuses_rows_and_columns(model: TransformerModel) -> None:
    with pytest.raises(ValueError, match="have rows and columns"):
        model.generate(
            ROWS, media={"image": media()}, max_new_tokens=2, cache={"kind": "sinks", "sinks": 1, "window": 20}
        )
