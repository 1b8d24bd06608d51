"""Patches: cut as a convolution does, laid out, masked and put together again; positions over the grid and resized."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from qkv.core.layout import Grid, Role
from qkv.nn.layers.patches import (
    GridPosition,
    Patches,
    States,
    image_layout,
    masked_layout,
    patchify,
    shown_patches,
    unpatchify,
)
from qkv.nn.positions.base import Widths


@pytest.mark.parametrize("size", [(8, 12), (11, 13)])
def test_a_projection_of_patches_is_a_strided_convolution(size: tuple[int, int]) -> None:
    pixels, weight = torch.randn(2, 3, *size).double(), torch.randn(5, 3, 4, 4).double()
    expected = F.conv2d(pixels, weight, stride=4).flatten(2).mT
    torch.testing.assert_close(patchify(pixels, (4, 4)) @ weight.flatten(1).T, expected)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["first", "last"]))
def test_joined_undoes_cut(rows: int, columns: int, height: int, width: int, channels: str) -> None:
    pixels = torch.randn(2, 3, rows * height, columns * width)
    patches = patchify(pixels, (height, width), channels)  # type: ignore[arg-type]
    assert torch.equal(unpatchify(patches, Grid(rows, columns), (height, width), channels), pixels)  # type: ignore[arg-type]


def test_a_stem_makes_patches_from_pixels() -> None:
    spec = Patches(image=(8, 12), patch=(4, 4), stem=(5, 6))
    module = spec.module(0, 8)
    for parameter in module.parameters():
        parameter.data.normal_()
    pixels = torch.randn(2, 3, 9, 14)  # what lies beyond the last whole patch is left out
    ids, layout = module.lay(pixels, None)
    again, same = module.lay(ids, layout)
    assert same is layout and torch.equal(again, ids)
    made = module(again, None)
    assert made.shape == (2, 7, 8) and module.stem is not None
    expected = module.project(module.stem(pixels[:, :, :8, :12]).flatten(2).mT)
    torch.testing.assert_close(made[:, 1:], expected)
    assert spec.cost(8, 0, 7).parameters == sum(p.numel() for p in module.parameters())


def test_a_stem_that_does_not_make_the_patches_is_refused() -> None:
    with pytest.raises(ValueError, match="a stem of 2 convolutions makes patches of 4 × 4 pixels, not 8 × 8"):
        Patches(image=(8, 8), patch=(8, 8), stem=(5, 6))


def test_a_stem_can_not_hide_patches() -> None:
    module = Patches(image=(8, 12), patch=(4, 4), stem=(5, 6)).module(0, 8)
    layout = masked_layout(module.spec.grid, torch.rand(1, 6), 0.5)
    with pytest.raises(ValueError, match="a stem overlaps the edges of patches"):
        module.lay(torch.randn(1, 3, 8, 12), layout)


def test_the_layout_of_an_image() -> None:
    layout = image_layout(Grid(2, 3, before=1, after=1))
    assert layout.positions[0].tolist() == [
        [0, -1, -1], [1, 0, 0], [2, 0, 1], [3, 0, 2], [4, 1, 0], [5, 1, 1], [6, 1, 2], [7, -1, -1],
    ]  # fmt: skip
    assert layout.roles is not None and layout.roles[0].tolist() == [Role.CLASS, *[0] * 6, Role.CLASS]


@given(st.integers(0, 2), st.floats(0, 0.95), st.integers(0, 1000))
def test_patches_with_the_least_noise_are_shown(before: int, masked: float, seed: int) -> None:
    grid, noise = Grid(3, 4, before, 1), torch.rand(2, 12, generator=torch.Generator().manual_seed(seed))
    layout = masked_layout(grid, noise, masked)
    shown, count = shown_patches(layout), int(12 * (1 - masked))
    assert layout.shape == (2, before + count + 1)
    for row in range(2):
        assert shown[row].tolist() == sorted(noise[row].argsort()[:count].tolist())


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_positions_for_another_size(mode: str) -> None:
    grid = Grid(3, 3, 1, 2)
    spec = GridPosition(interpolation=mode)  # type: ignore[arg-type]
    module = spec.module(Widths(4, 1, 4, None, grid=grid))
    module.weight.data.normal_()  # type: ignore[union-attr, operator]
    table = module.weight  # type: ignore[assignment]
    picture = table[1:10].T.reshape(1, 4, 3, 3)
    expected = F.interpolate(picture, size=(5, 2), mode=mode, align_corners=False).flatten(2)[0].T
    found = module.embed(image_layout(Grid(5, 2, 1, 2)))
    torch.testing.assert_close(found[0], torch.cat([table[:1], expected, table[10:]]))


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError, match=r"patches of 16 × 16 pixels don't fit into an image of 8 × 32"):
        Patches(image=(8, 32))
    with pytest.raises(ValueError, match="need an embedding with a grid"):
        GridPosition().module(Widths(4, 1, 4, None))
    module = Patches(image=(8, 8), patch=(4, 4)).module(0, 4)
    with pytest.raises(ValueError, match=r"images are \(batch, 3 channels, height, width\), not \(1, 1, 8, 8\)"):
        module.lay(torch.zeros(1, 1, 8, 8), None)
    assert States().grid is None
