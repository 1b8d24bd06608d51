"""Find the tokens of media in a joint sequence, and draw the input that the model read for each medium."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....core.layout import Grid
from ....data.media.png import png_bytes
from ....look.view.axis import patch_labels
from ....nn.layers.patches import Patches
from ....nn.models.joint import Medium, TimedVideo, Tower
from ...tasks.media import MediumReader
from ..loaded import LoadedModel, TextMedia
from ..reading.beside import readers_of

MOST_MOMENTS = 16  # the most pictures of a video on one sheet
_HIGH = 24  # height in pixels of the drawing of a series


@dataclass(frozen=True, eq=False)
class MediumSpan:
    """One medium in a sequence.

    name:    such as "image", "image 2" or "video".
    places:  indices of the tokens on display, row by row of the grid. A video is a sheet of its pictures.
    labels:  the labels of these tokens.
    every:   indices of all its tokens.
    note:    which moments of a video are drawn, if not all are.
    """

    name: str
    places: tuple[int, ...]
    labels: tuple[str, ...]
    grid: Grid
    picture: bytes
    every: tuple[int, ...]
    note: str = ""


class _Moment(NamedTuple):
    """What the model read at one time, such as a picture (C, H, W), and the indices of its tokens."""

    numbers: NDArray[np.float32]
    places: range


def spans_of(run: LoadedModel, text: str, ids: Sequence[int], found: TextMedia) -> Iterator[MediumSpan]:
    """Yield the media of a text whose tokens form a grid. Raises ValueError for a file that can't be read."""
    readers = {reader.name: reader for reader in readers_of(run)}
    for medium in run.media:
        pictures, clips = list[list[_Moment]](), list[list[_Moment]]()
        for is_clip, moments in _media(medium, readers[medium.name], ids, found):
            (clips if is_clip else pictures).append(moments)
        if medium.apart and clips:
            clips = _by_file(clips, readers["video"], getattr(text, "files", {}).get("video", ()))
        for name, several in ((medium.name, pictures), ("video", clips)):
            for number, moments in enumerate(several, 1):
                grid = _grid(medium, moments[0].numbers.shape)
                if grid is not None and grid.tokens == len(moments[0].places):
                    yield _span(name if len(several) == 1 else f"{name} {number}", moments, grid)


def _media(
    medium: Medium, reader: MediumReader, ids: Sequence[int], found: TextMedia
) -> Iterator[tuple[bool, list[_Moment]]]:
    """Yield for each medium of one kind whether it is a video, and its moments: one, or one per picture of a video."""
    frames = medium.reads.frames if isinstance(medium.reads, Tower) else 1
    at = 0
    for one in found.get(medium.name, ()):
        numbers = np.asarray(one.values if isinstance(one, TimedVideo) else one, np.float32)
        is_clip, moments = numbers.ndim == 4, list[_Moment]()
        for picture in numbers[::frames] if is_clip else numbers[None]:
            start = next(i for i in range(at, len(ids)) if ids[i] in (medium.token, medium.video))
            at = start + reader.tokens(picture.shape)
            moments.append(_Moment(picture, range(start, at)))
        yield is_clip, moments


def _by_file(clips: list[list[_Moment]], reader: MediumReader, files: Sequence[object]) -> list[list[_Moment]]:
    """Regroup the moments of clips by file, for models in which each clip is a separate medium."""
    sizes = [len(reader.places(file)) for file in files] if len(files) > 1 else [len(clips)]
    left = iter([moment for clip in clips for moment in clip])
    return [[next(left) for _ in range(size)] for size in sizes]


def _grid(medium: Medium, shape: Sequence[int]) -> Grid | None:
    reads = medium.reads
    patches = reads.stack.embedding if isinstance(reads, Tower) else reads
    if not isinstance(patches, Patches):
        return None
    grid = patches.grid_of((shape[1], shape[2]))
    return reads.projector.grid_of(grid) if isinstance(reads, Tower) else grid


def _span(name: str, moments: Sequence[_Moment], grid: Grid) -> MediumSpan:
    every = tuple(i for moment in moments for i in moment.places)
    if len(moments) == 1:
        (numbers, places), labels = moments[0], patch_labels(grid)
        return MediumSpan(name, tuple(places), labels, grid, _drawn(name, numbers), every)
    rows, columns = _arrangement(len(moments))
    chosen = np.linspace(0, len(moments) - 1, rows * columns).round().astype(int)
    names = [f"moment {i + 1}: {label}" for i in chosen for label in patch_labels(grid)]
    size = (rows, columns, grid.rows, grid.columns)
    tokens = np.arange(len(names)).reshape(size).transpose(0, 2, 1, 3).ravel()
    drawn = np.array([i for one in chosen for i in moments[one].places])[tokens].tolist()
    pictures = np.stack([moments[i].numbers for i in chosen])
    channels, height, width = pictures.shape[1:]
    sheet = pictures.reshape(rows, columns, channels, height, width).transpose(2, 0, 3, 1, 4)
    whole = grid._replace(rows=rows * grid.rows, columns=columns * grid.columns)
    note = f"{len(chosen)} of {len(moments)} moments are drawn" if len(chosen) < len(moments) else ""
    picture = _drawn(name, sheet.reshape(channels, rows * height, columns * width))
    return MediumSpan(name, tuple(drawn), tuple(names[i] for i in tokens), whole, picture, every, note)


def _arrangement(count: int) -> tuple[int, int]:
    """Return the rows and columns of a sheet of at most `count` pictures: one row for a few, otherwise nearly a square."""
    shown = min(count, MOST_MOMENTS)
    rows = 1 if shown < 6 else int(shown**0.5)
    return rows, shown // rows


def _drawn(name: str, numbers: NDArray[np.float32]) -> bytes:
    """Draw the input that the model read as a PNG file with stretched contrast. A series becomes a row of bars."""
    values = numbers if len(numbers) in (1, 3) else numbers.mean(0, keepdims=True)
    low, high = float(values.min()), float(values.max())
    values = (values - low) / max(high - low, 1e-9)
    if name == "series":
        values = (values[0, 0] >= np.linspace(1, 0, _HIGH)[:, None]).astype(np.float32)[None]
    return png_bytes(np.round(values * 255))
