"""Processors of directories of the Hub: how pictures become numbers, and what stands in their places in a text.

Both are those of transformers, to the last bit (the numbers as its processors on Pillow compute them) and id for id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....core.spec import brief, counted
from ....data.batching.numpy_batch import Array
from ....data.media import given
from ....data.media.images import Pixels
from ....data.media.pan_and_scan import PanAndScan
from ....data.media.square_pictures import SquarePictures
from ....io.directories.layout import PROCESSOR, read_json
from ....io.directories.preprocessor import Preprocessor, config_of
from ....nn.layers.patches import Patches
from ....nn.models.joint import Medium, Tower
from ....nn.positions.axes import AxialRotary
from ...tasks.media import MediaInPlace, MediumReader, Wording
from ..loaded import LoadedModel
from .videos import TimedProcessor, VideoProcessor, VideosInPlace

FAKE, WHOLE, TILE = "<fake_token_around_image>", "<global-img>", "<row_{}_col_{}>"
"""Tokens of Idefics 3 and SmolVLM: before each tile and around a whole picture, then which of them it is."""
_MOST_TILES = 6  # in a row and in a column, for which there are tokens


@dataclass(frozen=True, eq=False)
class _Seen:
    """A run and the medium of its pictures, with the settings of their processor."""

    run: LoadedModel
    medium: Medium
    tower: Tower
    marker: str
    config: Mapping[str, Any]
    where: object  # the file of the settings

    @property
    def channels(self) -> int:
        """The channels of one picture."""
        patches = self.tower.stack.embedding
        assert isinstance(patches, Patches)
        return patches.channels // self.tower.frames

    def id(self, name: str) -> int:
        """The id of a token. Raises ValueError if the tokenizer lacks it."""
        found: int | None = self.run.words.raw.token_to_id(name)
        if found is None:
            raise ValueError(f"{self.run.name} has no token {name} in its tokenizer, which stands beside pictures")
        return found


def of_directory(run: LoadedModel, medium: Medium) -> MediumReader:
    """Pictures as the processor of a directory reads them.

    Raises ValueError for a medium that is no picture, and for a directory that doesn't say how pictures are read, or says
    it for another model.
    """
    return KINDS.get(_kind(run), _plain)(_seen(run, medium))


def videos_of_directory(run: LoadedModel, medium: Medium) -> MediumReader | None:
    """Videos as the processor of a directory reads them, among the pictures of a medium; None for other models.

    Raises ValueError for settings that are not valid, or of another model.
    """
    return None if medium.video is None or _kind(run) not in VIDEOS else _videos(_seen(run, medium))


def marker_of(run: LoadedModel, medium: Medium) -> str | None:
    """What stands for a medium in a text; None if the tokenizer has no such token."""
    if _kind(run) == "gemma3":
        return _named(run, "boi_token", "<start_of_image>")
    name: str | None = run.words.raw.id_to_token(medium.token)
    return name


def _kind(run: LoadedModel) -> str:
    """The model type of a directory."""
    return "" if run.origin is None else str(run.origin.config.get("model_type", ""))


def _named(run: LoadedModel, role: str, usual: str) -> str:
    """The name of a token that the tokenizer's configuration gives a role."""
    said = run.words.config.get(role, usual)
    return said if isinstance(said, str) else usual


def _seen(run: LoadedModel, medium: Medium) -> _Seen:
    tower = medium.reads
    if medium.name != "image" or not isinstance(tower, Tower) or not isinstance(tower.stack.embedding, Patches):
        raise ValueError(
            f"{run.name} doesn't say how files become what its medium {medium.name} reads; train it further by the recipe "
            "see or omni (model=DIRECTORY), which stores that, or give numbers to "
            f'model.generate(ids, media={{"{medium.name}": …}})'
        )
    if run.path is None:
        raise ValueError(
            f"{run.name} has no directory with a preprocessor_config.json, which says how it reads pictures"
        )
    marker = marker_of(run, medium)
    if marker is None:
        raise ValueError(f"{run.name} has no token {medium.token} in its tokenizer, the place of a picture")
    config, path = config_of(run.path)
    return _Seen(run, medium, tower, marker, config, path)


# -- one size ------------------------------------------------------------------------------------------------------------


def _plain(seen: _Seen) -> MediumReader:
    """Pictures in one size, or in tiles and then whole."""
    try:
        squares = SquarePictures.of(seen.config, seen.channels)
    except ValueError as error:
        raise ValueError(f"{seen.where}: {error}") from None
    if squares is None:
        return _in_one_size(seen, Wording())
    cut = _squares(seen, squares)
    return MediumReader("image", seen.marker, seen.medium.token, _numbers(squares), seen.medium.tokens_of, cut=cut)


def _in_one_size(seen: _Seen, words: Wording) -> MediumReader:
    processor = _preprocessor(seen)
    return MediumReader(
        "image", seen.marker, seen.medium.token, _numbers(processor), seen.medium.tokens_of, words=words
    )


def _paligemma(seen: _Seen) -> MediumReader:
    """All pictures, the token that begins a text, the text, and the end of a line."""
    begin = seen.run.words.bos_id
    if begin is None:
        raise ValueError(
            f"{seen.run.name} has no token in its tokenizer that begins a text, which stands after pictures"
        )
    _check_places(seen)
    return _in_one_size(seen, Wording(last=(begin,), end="\n", framed=False))


def _numbers(processor: Preprocessor | SquarePictures) -> Callable[[object], Array]:
    def read(file: object) -> Array:
        where = given.name_of(file, "picture")
        pixels = given.picture(file, processor.color)
        made = processor.numbers(pixels, where) if isinstance(processor, Preprocessor) else processor.numbers(pixels)
        return np.asarray(made)

    return read


def _preprocessor(seen: _Seen) -> Preprocessor:
    """The numbers of pictures. Raises ValueError if the model's tower reads another size."""
    assert seen.run.path is not None
    processor = Preprocessor.with_channels(seen.run.path, seen.channels)
    size, reads = processor.crop or processor.size, seen.tower.stack.embedding
    assert isinstance(reads, Patches)
    if (
        isinstance(size, tuple)
        and reads.grid_of(size) != reads.grid
        and not isinstance(seen.tower.stack.position, AxialRotary)
    ):
        raise ValueError(
            f"{seen.where} draws pictures of {size[0]} × {size[1]} pixels, and the model reads {reads.image[0]} × "
            f"{reads.image[1]}; put the file of this model there"
        )
    return processor


def _check_places(seen: _Seen) -> None:
    """Raise ValueError if the processor writes another number of places for a picture than the model makes vectors."""
    assert seen.run.path is not None
    path, said = seen.where, seen.config.get("image_seq_length")
    if said is None and (seen.run.path / PROCESSOR).is_file():
        path, whole = seen.run.path / PROCESSOR, read_json(seen.run.path / PROCESSOR)
        said = whole.get("image_seq_length") if isinstance(whole, dict) else None
    if said is not None and said != seen.medium.reads.n_tokens:
        raise ValueError(
            f"{path} gives a picture {brief(said)} places (image_seq_length), and the model makes "
            f"{counted(seen.medium.reads.n_tokens or 0, 'vector')} of it; put the file of this model there"
        )


# -- pieces and tiles ----------------------------------------------------------------------------------------------------


def _gemma3(seen: _Seen) -> MediumReader:
    """Pictures between tokens that begin and end them, each in a paragraph; pan and scan adds pieces after the whole."""
    _check_places(seen)
    try:
        scan = PanAndScan.of(seen.config)
    except ValueError as error:
        raise ValueError(f"{seen.where}: {error}") from None
    processor = _preprocessor(seen)
    begin, end = seen.marker, _named(seen.run, "eoi_token", "<end_of_image>")
    first, last, tokens_of = seen.id(begin), seen.id(end), seen.medium.tokens_of

    def place(pixels: Pixels, where: str) -> MediaInPlace:
        numbers = processor.numbers(pixels, where)
        return MediaInPlace([numbers], [first, *[seen.medium.token] * tokens_of(numbers.shape), last])

    def cut(file: object) -> list[MediaInPlace]:
        pixels, where = given.picture(file, processor.color), given.name_of(file, "picture")
        return [place(one, where) for one in (pixels, *(() if scan is None else scan.pieces(pixels)))]

    words = Wording(around=lambda places: pieces_in_words(len(places), f"\n\n{begin}\n\n"))
    return MediumReader("image", begin, first, _numbers(processor), tokens_of, cut=cut, words=words)


def pieces_in_words(count: int, picture: str) -> str:
    """The text in the place of a picture of `count` media: the whole picture, and the pieces of it if there are any."""
    if count == 1:
        return picture
    pieces = " ".join([picture] * (count - 1))
    return f"Here is the original image {picture} and here are some crops to help you see better {pieces}"


def _squares(seen: _Seen, processor: SquarePictures) -> Callable[[object], list[MediaInPlace]]:
    """A function that reads a picture as Idefics 3 and SmolVLM do: as its tiles, row by row, and the whole of it."""
    words, tokens_of = seen.run.words, seen.medium.tokens_of
    known = [name for name in (seen.marker, FAKE, WHOLE, *_tiles()) if words.raw.token_to_id(name) is not None]
    tokenizer = words.reading(*known)

    def cut(file: object) -> list[MediaInPlace]:
        made = processor.squares(given.picture(file, processor.color))
        text = squares_in_words(made.rows, made.columns, seen.marker * tokens_of(made.numbers.shape[1:]))
        return [MediaInPlace(list(made.numbers), tokenizer.encode(text))]

    return cut


def _tiles() -> Iterator[str]:
    sides = range(1, _MOST_TILES + 1)
    return (TILE.format(row, column) for row in sides for column in sides)


def squares_in_words(rows: int, columns: int, square: str) -> str:
    """The text in the place of a picture: each row of tiles on a line, an empty line, and the whole picture; `square` is the
    text of one square."""
    tiles = (
        "".join(f"{FAKE}{TILE.format(row, column)}{square}" for column in range(1, columns + 1)) + "\n"
        for row in range(1, rows + 1)
    )
    return "".join(tiles) + "\n" * (rows > 0) + f"{FAKE}{WHOLE}{square}{FAKE}"


# -- any size ------------------------------------------------------------------------------------------------------------


def _qwen(seen: _Seen) -> MediumReader:
    """Pictures near to their own size, between tokens that begin and end them, which the text has."""
    _check_patches(seen, seen.config, seen.where)
    around = ("<|vision_start|>", "<|vision_end|>")
    there = all(seen.run.words.raw.token_to_id(name) is not None for name in around)
    alone = f"{around[0]}{seen.marker}{around[1]}" if there else ""
    return _in_one_size(seen, Wording(alone=alone, reads=around))


def _check_patches(seen: _Seen, config: Mapping[str, Any], where: object) -> None:
    """Raise ValueError if a file has other patches than the model."""
    patches = seen.tower.stack.embedding
    assert isinstance(patches, Patches)
    for key, usual, reads in (
        ("patch_size", 14, patches.patch[0]),
        ("merge_size", 2, seen.tower.projector.shuffle),
        ("temporal_patch_size", 2, seen.tower.frames),
    ):
        said = config.get(key) or usual
        if said != reads:
            raise ValueError(
                f"{where} has a {key} of {brief(said)}, and the model one of {reads}; put the file of this model there"
            )


def _videos(seen: _Seen) -> MediumReader | None:
    """Videos in the places of their placeholder, by the model of pictures."""
    kind, token = _kind(seen.run), seen.medium.video
    marker = None if token is None else seen.run.words.raw.id_to_token(token)
    if kind not in VIDEOS or token is None or marker is None or seen.run.path is None:
        return None
    places = VideosInPlace(VIDEOS[kind].of(seen.run.path), token, seconds=kind == "qwen2_5_vl")
    _check_patches(seen, places.processor.config, places.processor.where)
    alone = marker.join(places.around)
    words = Wording(
        alone=alone, reads=places.around, around=partial(places.words, marker) if places.processor.times else None
    )
    return MediumReader(
        "video",
        marker,
        token,
        lambda file: places.processor.numbers(places.processor.read(file).pictures).numpy(),
        seen.medium.tokens_of,
        cut=places.cut,
        words=words,
        medium=seen.medium.name,
    )


VIDEOS: Mapping[str, type[VideoProcessor]] = {
    "qwen2_vl": VideoProcessor,
    "qwen2_5_vl": VideoProcessor,
    "qwen3_vl": TimedProcessor,
    "qwen3_vl_moe": TimedProcessor,
}
"""Processors of videos, by the model type of a directory."""

KINDS: Mapping[str, Callable[[_Seen], MediumReader]] = {
    "paligemma": _paligemma,
    "gemma3": _gemma3,
    "qwen2_vl": _qwen,
    "qwen2_5_vl": _qwen,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
}
"""By the model type of a directory."""
