"""Files beside texts: pictures and sounds that a run reads in the places of placeholders, such as `<image>`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....core import several
from ....core.spec import brief
from ....data.batching.numpy_batch import Array
from ....data.media import given
from ....data.media.square_pictures import SquarePictures
from ....io.directories.layout import PREPROCESSOR, read_json
from ....io.directories.preprocessor import Preprocessor
from ....nn.layers.patches import Patches
from ....nn.models.joint import Medium, Tower
from ....nn.models.transformer import Transformer
from ...tasks import media
from ...tasks.media import MediumReader, ReadsMedia, TextWithFiles
from .. import unknown_words
from ..loaded import LoadedModel, TextMedia

Given = Sequence[object] | object | None
"""Files of one kind: a path, the bytes of a file, an array, a picture of Pillow, or a list of these."""

AROUND = ("<fake_token_around_image>", "<global-img>")
"""Tokens that Idefics 3 and SmolVLM have before the vectors of a whole picture; the first also stands after them."""


def readers_of(run: LoadedModel) -> tuple[MediumReader, ...]:
    """How a run reads each kind of media: as its task does, or as the `preprocessor_config.json` of its directory says.

    Raises ValueError for a run that reads texts alone, and for one that doesn't say how its pictures become numbers.
    """
    seen, task = run.media, run.trained_on
    if not seen:
        raise ValueError(f"{run.name} reads texts alone; leave pictures and sounds out")
    if isinstance(task, ReadsMedia):
        return task.media_readers(run.words)
    return tuple(_of_directory(run, medium) for medium in seen)


def files_of(images: Given = None, sounds: Given = None) -> dict[str, list[object]]:
    """Files by the names of their media; a single one is a list of one."""
    return {name: _listed(some) for name, some in (("image", images), ("sound", sounds)) if some is not None}


def _listed(some: Any) -> list[object]:
    many = isinstance(some, list) or (isinstance(some, tuple) and not (len(some) == 2 and isinstance(some[1], int)))
    return list(some) if many else [some]


def read(
    run: LoadedModel, texts: Sequence[str], images: Given = None, sounds: Given = None
) -> tuple[list[list[int]], Sequence[TextMedia]]:
    """The ids of texts; and the media of each, if there are files beside the texts or placeholders in them."""
    if files := files_of(images, sounds):
        texts = beside(run, several.texts(texts), files)
    if any(isinstance(text, TextWithFiles) for text in texts) or _has_places(run, texts):
        rows, found = prompts(run, texts)
    else:
        rows, found = list(map(run.encode, several.texts(texts))), []
    unknown_words.warn(run, texts, rows)
    return rows, found


def _has_places(run: LoadedModel, texts: Sequence[str]) -> bool:
    """Whether a text has a placeholder of a medium that the run reads."""
    names = [run.words.raw.id_to_token(medium.token) for medium in run.media]
    return any(name in text for name in names if name for text in several.texts(texts))


def beside(run: LoadedModel, texts: Sequence[str], files: Mapping[str, Sequence[object]]) -> list[TextWithFiles]:
    """Texts with the files that stand in them, see `tasks.media.beside`."""
    return media.beside(texts, readers_of(run), files)


def prompts(run: LoadedModel, texts: Sequence[str]) -> tuple[list[list[int]], list[dict[str, list[Array]]]]:
    """The ids of texts, with as many placeholders as each medium has vectors, and the media of each text.

    Raises ValueError if a text has more or fewer files than placeholders, for a file that can't be read, and for a
    question without room for an answer.
    """
    readers, task = readers_of(run), run.trained_on
    if isinstance(task, ReadsMedia):
        return media.asked(task, texts, run.words)
    tokenizer = run.words.reading(*(reader.marker for reader in readers))
    found = [
        media.placed(run.encode(text, tokenizer), readers, getattr(text, "files", {}), f"the text {brief(text[:60])}")
        for text in texts
    ]
    return [one.ids for one in found], [one.media for one in found]


# -- models of the Hub ---------------------------------------------------------------------------------------------------


def _of_directory(run: LoadedModel, medium: Medium) -> MediumReader:
    """Pictures whole and in one size, without the tiles into which some processors cut them."""
    tower = medium.reads
    if medium.name != "image" or not isinstance(tower, Tower):
        raise ValueError(
            f"{run.name} doesn't say how files become what its medium {medium.name} reads; give numbers to "
            f'model.generate(ids, media={{"{medium.name}": …}})'
        )
    if run.path is None:
        raise ValueError(
            f"{run.name} has no directory with a preprocessor_config.json, which says how it reads pictures"
        )
    processor, words = _processor(run.path, tower), run.words

    def read(file: object) -> Array:
        return np.asarray(processor.numbers(given.picture(file, processor.color)))

    first, whole = ([words.id(name)] if words.raw.token_to_id(name) is not None else [] for name in AROUND)
    marker = words.raw.id_to_token(medium.token)
    if marker is None:
        raise ValueError(f"{run.name} has no token {medium.token} in its tokenizer, the place of a picture")
    return MediumReader(
        "image", marker, medium.token, read, medium.tokens_of, before=(*first, *whole), after=tuple(first)
    )


def _processor(folder: Path, tower: Tower) -> Preprocessor | SquarePictures:
    """How pictures become numbers. Warns if the model's own processor would also cut them into tiles."""
    patches, path = tower.stack.embedding, folder / PREPROCESSOR
    try:
        squares = None
        if isinstance(patches, Patches) and path.is_file():
            squares = SquarePictures.of(read_json(path), patches.channels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if squares is None:
        return Preprocessor.of(folder, Transformer(d_model=tower.width, encoder=tower.stack, head=None))
    if squares.tiles:
        warnings.warn(
            f"{folder} cuts large pictures into tiles, and here each is read whole, in {squares.side} × "
            f"{squares.side} pixels; small writing may be lost",
            stacklevel=6,
        )
    return squares
