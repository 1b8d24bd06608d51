"""Joint sequences: what a decoder read of a text and the files beside it, and its attention from words into each medium."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....core.layout import Grid
from ....data.media.png import png_bytes
from ....look.view.attention import AttentionGroup, by_group, layer_weights
from ....look.view.axis import MOST_TOKENS, Axis, patch_labels
from ....look.view.labels import token_labels
from ....nn.kernels.request import Request
from ....nn.layers.patches import Patches
from ....nn.models.joint import Medium, Tower
from ....nn.models.transformer import TransformerModel
from ...tasks.captioning.joint import See, question_of
from ...tasks.media import MediumReader, arrays, stacked
from ..loaded import LoadedModel, TextMedia
from ..reading.beside import prompts, readers_of

MOST_WRITTEN = 64  # tokens of an answer that is generated to be looked at
_HIGH = 24  # pixels of the drawing of a series


@dataclass(frozen=True, eq=False)
class MediumSpan:
    """One medium in a sequence: its name, such as "image" or "image 2", its first token, and how its tokens stand."""

    name: str
    start: int
    grid: Grid
    picture: bytes


@dataclass(frozen=True, eq=False)
class JointPass:
    """A text with its media and the answer: ids of the whole sequence, its media, and a pass over it."""

    run: Callable[[], Tensor]
    ids: tuple[int, ...]
    output: str
    spans: tuple[MediumSpan, ...]


def joint_pass(run: LoadedModel, text: str) -> JointPass:
    """Read a text with the files beside it, or for questions about pictures FILE<tab>QUESTION, and write the answer.

    Raises ValueError if files and places differ in number, and for a file that can't be read.
    """
    asked = question_of(text) if isinstance(run.trained_on, See) else text
    (prompt,), found = prompts(run, [asked])
    settings = run.generation.replace(
        {"max_new_tokens": min(run.generation.max_new_tokens, MOST_WRITTEN), "num_beams": 1}
    )
    output = run.outputs_of([prompt], settings.replace({"num_samples": 1}), media=found if any(found) else ())[0][
        0
    ].text
    ids = (*prompt, *run.words.encode(output))
    model, media = cast(TransformerModel, run.model), stacked(found)
    read = torch.tensor([ids], device=model.device)
    spans = tuple(_spans(run, ids, found[0] if found else {}))
    return JointPass(lambda: model.hidden(read, media=media or None), ids, output, spans)


def _spans(run: LoadedModel, ids: Sequence[int], found: TextMedia) -> Iterator[MediumSpan]:
    """The media of a sequence whose tokens stand on a grid."""
    for medium, reader in zip(run.media, _by_medium(run), strict=True):
        at, several = 0, arrays(found.get(medium.name, ()))
        for number, array in enumerate(several, 1):
            start, count = ids.index(medium.token, at), reader.tokens(array.shape)
            at, grid = start + count, _grid(medium, array.shape)
            if grid is not None and grid.tokens == count:
                name = medium.name if len(several) == 1 else f"{medium.name} {number}"
                yield MediumSpan(name, start, grid, _drawn(medium.name, np.asarray(array, np.float32)))


def _by_medium(run: LoadedModel) -> list[MediumReader]:
    readers = {reader.name: reader for reader in readers_of(run)}
    return [readers[medium.name] for medium in run.media]


def _grid(medium: Medium, shape: Sequence[int]) -> Grid | None:
    reads = medium.reads
    patches = reads.stack.embedding if isinstance(reads, Tower) else reads
    if not isinstance(patches, Patches):
        return None
    grid = patches.grid_of((shape[1], shape[2]))
    return reads.projector.grid_of(grid) if isinstance(reads, Tower) else grid


def _drawn(name: str, numbers: NDArray[np.float32]) -> bytes:
    """What the model read of a medium, as a PNG file with its contrast stretched; a series is a row of bars."""
    values = numbers if len(numbers) in (1, 3) else numbers.mean(0, keepdims=True)
    low, high = float(values.min()), float(values.max())
    values = (values - low) / max(high - low, 1e-9)
    if name == "series":
        values = (values[0, 0] >= np.linspace(1, 0, _HIGH)[:, None]).astype(np.float32)[None]
    return png_bytes(np.round(values * 255))


def media_groups(
    requests: Sequence[Request],
    made: JointPass,
    run: LoadedModel,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> tuple[list[AttentionGroup], dict[str, Axis]]:
    """The attention of words into each medium, and its axes: of the words after it, and of its places."""
    places = {i for span in made.spans for i in range(span.start, span.start + span.grid.tokens)}
    decoder = by_group(requests).get("decoder", [])
    groups, axes = list[AttentionGroup](), dict[str, Axis]()
    for span in made.spans:
        words = [i for i in range(span.start, len(made.ids)) if i not in places][:MOST_TOKENS]
        columns = range(span.start, span.start + span.grid.tokens)
        if not words:
            continue
        labels = tuple(token_labels(run.words, [made.ids[i] for i in words]))
        name = f"words after the {span.name}"
        axes[name] = Axis(name, labels, tuple(words), len(words))
        axes[span.name] = Axis(
            span.name, patch_labels(span.grid), tuple(columns), len(columns), grid=span.grid, picture=span.picture
        )
        shown = [i for i in range(len(decoder)) if layers is None or i in layers]
        weights = tuple(layer_weights(decoder[i], i, words, columns, heads) for i in shown)
        groups.append(AttentionGroup(span.name, name, span.name, weights, len(decoder)))
    return groups, axes
