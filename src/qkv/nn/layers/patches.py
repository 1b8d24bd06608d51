"""Patch embeddings of images: cutting and projecting patches, their layouts, positions over their grid, and
projectors of their states."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from ...core.layout import Grid, Layout, Role
from ...core.several import worded
from ...core.spec import Cost, Spec
from ..positions.base import Position, PositionModule, Widths
from .convolution import Stem
from .dropout import dropout
from .embedding import Input, InputModule
from .feedforward import ACTIVATIONS, Activation
from .linear import Linear
from .norm import NoNorm, Norm

Size = tuple[int, int]  # height and width, in pixels

# -- from pixels to tokens ---------------------------------------------------------------------------------------------


def patchify(
    pixels: Float[Tensor, "B C H W"], patch: Size, channels: Literal["first", "last"] = "first"
) -> Float[Tensor, "B N P"]:
    """Cut images into patches row by row, each flattened as (C, h, w), the order of a convolution's weights, or with
    `channels` "last" as (h, w, C). Pixels beyond the last whole patch are left out, as by a convolution."""
    rows, columns = pixels.shape[2] // patch[0], pixels.shape[3] // patch[1]
    whole = pixels[:, :, : rows * patch[0], : columns * patch[1]]
    split = whole.unflatten(3, (columns, patch[1])).unflatten(2, (rows, patch[0]))  # (B, C, rows, h, columns, w)
    order = (0, 2, 4, 1, 3, 5) if channels == "first" else (0, 2, 4, 3, 5, 1)
    return split.permute(order).flatten(3).flatten(1, 2)


def unpatchify(
    patches: Float[Tensor, "B N P"], grid: Grid, patch: Size, channels: Literal["first", "last"] = "first"
) -> Float[Tensor, "B C H W"]:
    """Undo `patchify`."""
    split = patches.unflatten(1, (grid.rows, grid.columns))
    if channels == "first":
        return split.unflatten(3, (-1, *patch)).permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
    return split.unflatten(3, (*patch, -1)).permute(0, 5, 1, 3, 2, 4).flatten(4).flatten(2, 3)


class Patches(Input, kind="patches"):
    """x_i = W p_i + b for the i-th flattened patch p_i of an image, with learned tokens `before` and `after` the patches.

    Dosovitskiy et al. 2021 (ViT) have one class token before, Touvron et al. 2021 (DeiT) also a distillation token, and
    Fang et al. 2021 (YOLOS) detection tokens after. `image` is the size (height, width) that positions are made for; images
    of other sizes can be read too, with resized positions (`GridPosition`). Without `bias`, there is no b. `norm` is applied
    to the embedded tokens (CLIP has a layer norm there).

    stem: widths of 3 × 3 convolutions of stride 2, as many as reduce a patch to one pixel. W reads this pixel instead of the
          patch. Models then learn faster from few images (Xiao et al. 2021, with batch norm; here with the norm of
          `layers.convolution`). Convolutions overlap the edges of patches, so no patch can be hidden.
    """

    image: Size = (224, 224)
    patch: Size = (16, 16)
    channels: int = Field(default=3, gt=0)
    before: int = Field(default=1, ge=0)
    after: int = Field(default=0, ge=0)
    bias: bool = True
    norm: Norm = NoNorm()
    dropout: float = Field(default=0.0, ge=0, lt=1)
    stem: tuple[Annotated[int, Field(gt=0)], ...] = ()

    @model_validator(mode="after")
    def _has_patches(self) -> Patches:
        if min(self.patch) < 1 or any(i < p for i, p in zip(self.image, self.patch, strict=True)):
            raise ValueError(f"patches of {_sized(self.patch)} pixels don't fit into an image of {_sized(self.image)}")
        side = 2 ** len(self.stem)
        if self.stem and self.patch != (side, side):
            raise ValueError(
                f"a stem of {len(self.stem)} convolutions makes patches of {_sized((side, side))} pixels, not "
                f"{_sized(self.patch)}; give one width for each halving of a patch"
            )
        return self

    @property
    def pixels(self) -> int:
        """Number of values in one patch."""
        return self.patch[0] * self.patch[1] * self.channels

    @property
    def grid(self) -> Grid:
        return self.grid_of(self.image)

    def grid_of(self, image: Size) -> Grid:
        """Return the grid of an image of another size."""
        return Grid(image[0] // self.patch[0], image[1] // self.patch[1], self.before, self.after)

    def module(self, vocab_size: int, d_model: int) -> PatchEmbedding:
        return PatchEmbedding(self, d_model)

    def cost(self, d_model: int, vocab_size: int, tokens: int = 0) -> Cost:
        extra = self.before + self.after
        patches = max(tokens - extra, 0)
        read = self.stem[-1] if self.stem else self.pixels
        own = Cost((read + self.bias + extra) * d_model, 2 * read * d_model * patches) + self.norm.cost(d_model, tokens)
        return own + Stem.cost(self.channels, self.stem, patches)


class PatchEmbedding(InputModule):
    """The module of `Patches`. It reads patches, which `lay` cuts from pixels, or with a stem the pixels."""

    lays = True

    def __init__(self, spec: Patches, d_model: int) -> None:
        super().__init__()
        self.spec, self.dropout = spec, spec.dropout
        self.stem = Stem(spec.channels, spec.stem) if spec.stem else None
        self.project = Linear(spec.stem[-1] if spec.stem else spec.pixels, d_model, bias=spec.bias)
        self.before = nn.Parameter(torch.empty(spec.before, d_model)) if spec.before else None
        self.after = nn.Parameter(torch.empty(spec.after, d_model)) if spec.after else None
        self.norm = spec.norm.module(d_model)

    @property
    def weight(self) -> nn.Parameter:  # type: ignore[override]
        return self.project.weight

    def lay(
        self,
        pixels: Float[Tensor, "B C H W"] | Float[Tensor, "B N P"],
        layout: Layout | None,
        mask: Tensor | None = None,
    ) -> tuple[Float[Tensor, "B N P"] | Float[Tensor, "B C H W"], Layout]:
        """Return the patches of a layout, by default all, and the layout. With a stem, return the pixels of whole patches.

        Raises ValueError for pixels of another shape, number of channels or grid, for patches hidden from a stem, and for a
        mask.
        """
        if mask is not None:
            raise ValueError("images have no attention mask; a layout says which patches are shown (masked_layout)")
        if pixels.ndim == 3 and layout is not None and self.stem is None:
            return pixels, layout
        if pixels.ndim != 4 or pixels.shape[1] != self.spec.channels:
            raise ValueError(
                f"images are (batch, {self.spec.channels} channels, height, width), not {tuple(pixels.shape)}"
            )
        size = (pixels.shape[2], pixels.shape[3])
        grid = self.spec.grid_of(size)
        if not grid.patches:
            raise ValueError(f"an image of {_sized(size)} pixels is smaller than a patch of {_sized(self.spec.patch)}")
        layout = image_layout(grid, pixels.device) if layout is None else layout
        if layout.grid != grid:
            raise ValueError(f"the layout has {layout.grid}, and images of {_sized(size)} pixels have {grid}")
        if self.stem is not None:
            if layout.shape[1] != grid.tokens:
                raise ValueError("a stem overlaps the edges of patches, so none can be hidden; leave the stem out")
            return pixels[:, :, : grid.rows * self.spec.patch[0], : grid.columns * self.spec.patch[1]], layout
        patches = patchify(pixels, self.spec.patch)
        if layout.shape[1] == grid.tokens:
            return patches, layout
        shown = shown_patches(layout)[..., None].expand(len(pixels), -1, patches.shape[2])
        return patches.gather(1, shown), layout

    def forward(
        self,
        patches: Float[Tensor, "B N P"] | Float[Tensor, "B C H W"],
        position: Float[Tensor, "B T M"] | None,
        token_types: Tensor | None = None,
    ) -> Float[Tensor, "B T M"]:
        x = patches.to(self.weight.dtype)
        x = self.project(x if self.stem is None else self.stem(x).flatten(2).mT)
        parts = [None if t is None else t.expand(x.shape[0], -1, -1) for t in (self.before, self.after)]
        x = torch.cat([part for part in (parts[0], x, parts[1]) if part is not None], 1)
        if position is not None:
            x = x + position.to(x.dtype)
        return dropout(self.norm(x), self.dropout, self.training)


class States(Input, kind="states"):
    """Vectors of width d_model, such as the states of another stack. `of`: the grid of the image that they represent."""

    of: Grid | None = None

    @property
    def grid(self) -> Grid | None:
        return self.of

    def module(self, vocab_size: int, d_model: int) -> StateEmbedding:
        return StateEmbedding()


class StateEmbedding(InputModule):
    """The module of `States`."""

    def forward(
        self,
        states: Float[Tensor, "B T M"],
        position: Float[Tensor, "B T M"] | None,
        token_types: Tensor | None = None,
    ) -> Float[Tensor, "B T M"]:
        return states if position is None else states + position.to(states.dtype)


# -- layouts -----------------------------------------------------------------------------------------------------------


def image_layout(grid: Grid, device: torch.device | str | None = None) -> Layout:
    """Return the layout of all tokens of an image; those before and after the patches have `Role.CLASS`."""
    number = torch.arange(grid.tokens, device=device)
    patch = number - grid.before
    is_patch = (patch >= 0) & (patch < grid.patches)
    row = torch.where(is_patch, patch // grid.columns, -1)
    column = torch.where(is_patch, patch % grid.columns, -1)
    positions = torch.stack([number, row, column], -1)[None]
    roles = torch.where(is_patch, int(Role.PLAIN), int(Role.CLASS))[None]
    return Layout(positions, roles=roles, padding="none", sequential=True, grid=grid)


@worded
def masked_layout(grid: Grid, noise: Float[Tensor, "B N"], masked: float = 0.75) -> Layout:
    """Return the layout of images without a random share of their patches, for masked autoencoders (He et al. 2022).

    In each row the ⌊N (1 − masked)⌋ patches with the least noise are kept, in the order of the image.
    """
    if noise.ndim != 2 or noise.shape[1] != grid.patches:
        raise ValueError(f"noise is one number for each of the {grid.patches} patches, not {tuple(noise.shape)}")
    if not 0 <= masked < 1:
        raise ValueError(f"the share of masked patches is in [0, 1), not {masked}")
    full = image_layout(grid, noise.device)
    number = full.positions[0, :, 0].expand(len(noise), -1)
    kept = noise.argsort(1)[:, : int(grid.patches * (1 - masked))].sort(1).values + grid.before
    shown = torch.cat([number[:, : grid.before], kept, number[:, grid.before + grid.patches :]], 1)
    assert full.roles is not None
    return Layout(full.positions[0][shown], roles=full.roles[0][shown], padding="none", grid=grid)


def shown_patches(layout: Layout) -> Int[Tensor, "B N"]:
    """Return the indices of the shown patches, row by row from 0."""
    assert layout.grid is not None
    return layout.positions[:, patches_of(layout), 0] - layout.grid.before


def patches_of(layout: Layout) -> slice:
    """Return the range of tokens that are patches. Raises ValueError for a layout that is not of an image."""
    if layout.grid is None:
        raise ValueError("this needs the layout of an image, such as that of a stack over patches")
    return slice(layout.grid.before, layout.shape[1] - layout.grid.after)


# -- positions over the grid -------------------------------------------------------------------------------------------


class GridPosition(Position, kind="grid"):
    """One vector for each token of an image: learned (ViT), or fixed with `table` "sinusoidal" (MAE, He et al. 2022).

    Fixed vectors are [sin cx, cos cx, sin ry, cos ry] for row r and column c with rates base^(−4i/d), and 0 for tokens that
    are not patches. For images of another size the table is resized by `interpolation`, except for tokens that are not
    patches. `align_corners` (Qwen3-VL) and `antialias` (SigLIP 2) are options of `F.interpolate`, which resizes the table.
    As in the original, the fixed table is saved with the weights.

    `between`: every further block has its own table, which is added to the output of the block before it (YOLOS, Fang et
    al. 2021).
    """

    table: Literal["learned", "sinusoidal"] = "learned"
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    align_corners: bool = False
    antialias: bool = False
    base: float = Field(default=10000.0, gt=1)
    between: bool = False

    def module(self, widths: Widths) -> PositionModule:
        if widths.grid is None:
            raise ValueError("positions over a grid need an embedding with a grid: patches, or states of an image")
        if self.table == "sinusoidal" and widths.d_model % 4:
            raise ValueError(f"sinusoidal positions over a grid need a width divisible by 4, not {widths.d_model}")
        return GridEmbedding(self, widths.grid, widths.d_model)

    def n_parameters(self, widths: Widths) -> int:
        tokens = 0 if widths.grid is None else widths.grid.tokens
        return tokens * widths.d_model if self.table == "learned" else 0

    def encode(self, grid: Grid, d_model: int) -> Float[Tensor, "T M"]:
        """Return the fixed table."""
        axes = image_layout(grid).positions[0, :, 1:].double()
        rate = self.base ** -(torch.arange(d_model // 4, dtype=torch.float64) / (d_model // 4))
        row, column = axes[:, :1] * rate, axes[:, 1:] * rate
        table = torch.cat([column.sin(), column.cos(), row.sin(), row.cos()], -1)
        return table.masked_fill(axes[:, :1] < 0, 0.0).to(torch.get_default_dtype())


class GridEmbedding(PositionModule):
    """The module of `GridPosition`; `weight` is (before + rows · columns + after, d_model)."""

    weight: Tensor

    def __init__(self, spec: GridPosition, grid: Grid, d_model: int) -> None:
        super().__init__()
        self.grid, self.spec = grid, spec
        if spec.table == "learned":
            self.weight = nn.Parameter(torch.empty(grid.tokens, d_model))
        else:
            self.register_buffer("weight", spec.encode(grid, d_model))

    def embed(self, layout: Layout) -> Float[Tensor, "B T M"]:
        if layout.grid is None:
            raise ValueError("positions over a grid need the layout of an image, and this layout has no grid")
        table = self.weight if layout.grid == self.grid else self.resized(layout.grid)
        if layout.shape == (1, len(table)):
            return table[None]
        return F.embedding(layout.positions[..., 0].clamp(min=0), table)

    def resized(self, grid: Grid) -> Float[Tensor, "T M"]:
        """Return the table for an image of another size."""
        if (grid.before, grid.after) != (self.grid.before, self.grid.after):
            raise ValueError(f"the image has {grid}, but the table of positions is for {self.grid}")
        before, patches, after = self.weight.split((self.grid.before, self.grid.patches, self.grid.after))
        exact = torch.promote_types(patches.dtype, torch.float32)
        picture = patches.unflatten(0, (self.grid.rows, self.grid.columns)).movedim(-1, 0)[None].to(exact)
        size = (grid.rows, grid.columns)
        options = {"align_corners": self.spec.align_corners, "antialias": self.spec.antialias}
        picture = F.interpolate(picture, size=size, mode=self.spec.interpolation, **options)
        return torch.cat([before, picture[0].flatten(1).T.to(patches.dtype), after])


# -- projectors --------------------------------------------------------------------------------------------------------


class Projector(Spec, kind="projector"):
    """Projects the states of a tower to vectors of a decoder: mean over `pool` × `pool` places, norm, `shuffle` × `shuffle`
    places side by side in one vector (pixel shuffle), then x W + b, or with `hidden` W₂ f(W₁ x + b₁) + b₂. With
    `norm_last` the norm is of the vectors that places are joined to.

    A linear layer is PaliGemma's (Beyer et al. 2024), `hidden` LLaVA-1.5's (Liu et al. 2023), `pool` Gemma 3's and
    `shuffle` Idefics 3's (Laurençon et al. 2024).
    """

    pool: int = Field(default=1, gt=0)
    norm: Norm = NoNorm()
    norm_last: bool = False
    shuffle: int = Field(default=1, gt=0)
    hidden: int | None = Field(default=None, gt=0)
    activation: Activation = "gelu"
    bias: bool = True

    def grid_of(self, grid: Grid) -> Grid:
        """The grid of vectors over a grid of states. Raises ValueError if its rows or columns can't be divided."""
        side = self.pool * self.shuffle
        if grid.rows % side or grid.columns % side:
            raise ValueError(
                f"{grid.rows} × {grid.columns} patches of the vision tower can't be joined {side} × {side} to a vector; "
                f"give pictures whose patches are a multiple of {side} in rows and columns"
            )
        return Grid(grid.rows // side, grid.columns // side)

    def cost(self, width: int, d_model: int, tokens: int = 0) -> Cost:
        """Cost of `tokens` vectors of width `d_model`, from states of `width`."""
        read = width * self.shuffle**2
        sizes = ((read, d_model),) if self.hidden is None else ((read, self.hidden), (self.hidden, d_model))
        parameters = sum(a * b + b * self.bias for a, b in sizes)
        own = Cost(parameters, 2 * tokens * sum(a * b for a, b in sizes))
        normed = (read, tokens) if self.norm_last else (width, tokens * self.shuffle**2)
        return own + self.norm.cost(*normed)


class ProjectorModule(nn.Module):
    """The module of `Projector`."""

    def __init__(self, spec: Projector, width: int, d_model: int) -> None:
        super().__init__()
        self.spec, read = spec, width * spec.shuffle**2
        self.norm = spec.norm.module(read if spec.norm_last else width)
        self.up = None if spec.hidden is None else Linear(read, spec.hidden, spec.bias)
        self.out = Linear(spec.hidden or read, d_model, spec.bias)

    def forward(self, states: Float[Tensor, "B N W"], grid: Grid | None) -> Float[Tensor, "B P M"]:
        pool, shuffle = self.spec.pool, self.spec.shuffle
        if pool > 1:
            assert grid is not None
            picture = unpatchify(states, Grid(grid.rows, grid.columns), (1, 1))
            states = nn.functional.avg_pool2d(picture, pool).flatten(2).mT
            grid = Grid(grid.rows // pool, grid.columns // pool)
        states = states if self.spec.norm_last else self.norm(states)
        if shuffle > 1:
            assert grid is not None
            picture = unpatchify(states, Grid(grid.rows, grid.columns), (1, 1))
            states = patchify(picture, (shuffle, shuffle), channels="last")
        states = self.norm(states) if self.spec.norm_last else states
        if self.up is not None:
            states = ACTIVATIONS[self.spec.activation](self.up(states))
        out: Tensor = self.out(states)
        return out


def _sized(size: Size) -> str:
    return f"{size[0]} × {size[1]}"
