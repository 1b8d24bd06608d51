"""Rotary positions over several axes: time, row and column of each token (M-RoPE), and rows and columns of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from ...core.layout import Layout
from ..patterns.documents import document_numbers
from .base import PositionModule, Tables, Widths
from .rotary import Rotary, RotaryTurn

# -- positions of tokens -------------------------------------------------------------------------------------------------


class AxisGrid(NamedTuple):
    """The vectors of a medium: `times` pictures of `rows` · `columns`, `interval` positions apart."""

    times: int
    rows: int
    columns: int
    interval: float = 1.0


def over_axes(
    layout: Layout, numbers: Int[Tensor, "B T"], grids: Sequence[AxisGrid | None], counts: Sequence[int]
) -> Layout:
    """Return the layout with the axes index, time, row and column (Wang et al. 2024, Qwen2-VL, §2.1).

    Text has one position p on all axes. A picture after it has time p, row p + r and column p + c, a video time
    p + ⌊t · interval⌋; text after that continues from p + max(rows, columns). `numbers` says of which medium each token is,
    from 1, in the order of `grids`, each with as many tokens as `counts` says; 0, and media without a grid, count as text.
    Positions start again in each document.
    """
    sizes = torch.tensor(
        [(1, 1, 1, 1.0), *((1, 1, 1, 1.0) if g is None else g for g in grids)],
        device=numbers.device,
        dtype=torch.float64,
    )
    placed = torch.tensor([False, *(g is not None for g in grids)], device=numbers.device)[numbers]
    times, rows, columns = sizes[numbers, :3].long().unbind(-1)
    nth = _nth(numbers, counts) * placed
    last = nth == times * rows * columns - 1
    advance = torch.where(placed, rows.maximum(columns) * last, 1) * layout.valid
    base = advance.cumsum(1) - advance + _starts(layout, advance)
    time = (nth // (rows * columns) * sizes[numbers, 3].float()).long()
    within = nth % (rows * columns)
    index = layout.positions[..., 0].expand_as(base)
    axes = torch.stack([index, base + time, base + within // columns, base + within % columns], -1)
    return replace(layout, positions=axes.masked_fill(~layout.valid[..., None], -1))


def _nth(numbers: Tensor, tokens: Sequence[int]) -> Tensor:
    """How many tokens of its medium come before each token."""
    flat = numbers.flatten()
    rank = torch.empty_like(flat)
    rank[flat.argsort(stable=True)] = torch.arange(len(flat), device=flat.device)
    first = torch.tensor([0, len(flat) - sum(tokens), *tokens], device=flat.device).cumsum(0)[:-1]
    return (rank - first[flat]).view_as(numbers)


def _starts(layout: Layout, advance: Tensor) -> Tensor:
    """Return the offsets to add to the cumulative sums of `advance`, so each document begins at its first position."""
    run = document_numbers(layout)
    run = torch.zeros_like(advance) if run is None else run.expand_as(advance)
    far = torch.iinfo(advance.dtype).max
    before = (advance.cumsum(1) - advance).masked_fill(~layout.valid, far)
    first = layout.positions[..., -1].expand_as(advance).masked_fill(~layout.valid, far)
    least = [torch.full_like(t, far).scatter_reduce(1, run, t, "amin").gather(1, run) for t in (first, before)]
    return (least[0] - least[1]) * layout.valid


# -- M-RoPE --------------------------------------------------------------------------------------------------------------


class MultimodalRotary(Rotary, kind="mrope"):
    """Rotary positions whose pairs of coordinates turn by different axes: pair i by p_a(i) · base^(−2i/R), where a(i) is
    time, row or column (M-RoPE, Wang et al. 2024, Qwen2-VL).

    `sections` are the numbers of pairs for time, rows and columns, R/2 in total; by default a quarter for time, and half of
    the rest each. In `blocks`, the first pairs turn by time, the next by rows, the last by columns. `interleaved` gives rows
    the pairs 1, 4, 7 …, columns the pairs 2, 5, 8 …, and time all others, so each axis has fast and slow pairs (Bai et al.
    2025, Qwen3-VL). Text has the same position on all axes, so a text
    without media is rotated as by `Rotary`. A joint input (`nn.models.joint`) gives tokens of media their rows and columns.
    """

    sections: tuple[int, int, int] | None = None
    arrangement: Literal["blocks", "interleaved"] = "blocks"

    @model_validator(mode="after")
    def _has_sections(self) -> MultimodalRotary:
        if self.sections is not None and (min(self.sections) < 0 or not sum(self.sections)):
            raise ValueError(f"sections are numbers of pairs for time, rows and columns, not {list(self.sections)}")
        return self

    def axis_of_pairs(self, pairs: int) -> list[int]:
        """The axis of each pair: 0 time, 1 row, 2 column. Raises ValueError if the sections have other pairs."""
        time = pairs // 4
        sections = self.sections or (time, (pairs - time) // 2, pairs - time - (pairs - time) // 2)
        if sum(sections) != pairs:
            raise ValueError(
                f"the sections {list(sections)} of M-RoPE are for {sum(sections)} pairs of coordinates, and heads "
                f"have {pairs} that rotate; give sections with that sum"
            )
        if self.arrangement == "blocks":
            return [axis for axis, count in enumerate(sections) for _ in range(count)]
        axes = [0] * pairs
        for axis in (1, 2):
            for pair in range(axis, min(3 * sections[axis], pairs), 3):
                axes[pair] = axis
        return axes

    def module(self, widths: Widths) -> PositionModule:
        return MultimodalTurn(self, self.width(widths.d_head))


class MultimodalTurn(RotaryTurn):
    """The module of `MultimodalRotary`."""

    reads_axes: ClassVar[bool] = True

    def __init__(self, spec: MultimodalRotary, width: int) -> None:
        super().__init__(spec, width)
        self.axes = spec.axis_of_pairs(width // 2)

    def positions(self, layout: Layout) -> Float[Tensor, "B T R/2"]:
        if layout.positions.shape[-1] == 1:
            return super().positions(layout)
        axes = torch.tensor(self.axes, device=layout.device) + 1
        return layout.positions.clamp(min=0).float()[..., axes]


# -- rows and columns of a picture ---------------------------------------------------------------------------------------


class AxialRotary(Rotary, kind="axial-rotary"):
    """Rotary positions in a picture: the first half of the pairs turn by the row, the others by the column, both at the
    rates base^(−4i/R) for i < R/4 (Fang et al. 2023, EVA-02; Qwen2-VL's vision tower).

    Tokens without a place, such as a class token, are not rotated. A text is one row.
    """

    base: float = Field(default=10000.0, gt=1)

    def module(self, widths: Widths) -> PositionModule:
        width = self.width(widths.d_head)
        if width % 4:
            raise ValueError(
                f"rotary positions over rows and columns need heads divisible by 4, not {width} coordinates"
            )
        return AxialTurn(self, width)


class AxialTurn(RotaryTurn):
    """The module of `AxialRotary`."""

    def __init__(self, spec: AxialRotary, width: int) -> None:
        super().__init__(spec, width)
        self.turn = self.turn._replace(width=width // 2)

    def tables(self, layout: Layout) -> Tables:
        rates = self.scaling.rates(self.turn, layout.device, None)
        axes = layout.positions.clamp(min=0).float()
        places = torch.cat([torch.zeros_like(axes), axes], -1) if axes.shape[-1] == 1 else axes[..., -2:]
        angle = (places[..., None] * rates).flatten(-2)[:, :, None]
        return angle.cos() * self.magnitude, angle.sin() * self.magnitude
