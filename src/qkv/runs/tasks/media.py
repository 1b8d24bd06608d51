"""Media beside texts: how pictures, sounds and series become numbers, and where their vectors stand among tokens."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from ...core.spec import brief, counted
from ...data.batching.numpy_batch import Array
from ...data.tokenizers.chat.conversations import text_and
from ...data.tokenizers.tokenizer import Tokenizer
from ...nn.models.joint import TimedVideo, Values

Files = Mapping[str, Sequence[object]]
"""Pictures, sounds … by the names of their media: paths, bytes, arrays, Pillow's pictures."""


class TextWithFiles(str):
    """A text, and the files whose media stand at its placeholders, in their order."""

    files: Files

    def __new__(cls, text: str, files: Files) -> Self:
        made = super().__new__(cls, text)
        made.files = files
        return made


Numbers = Array | TimedVideo
"""What a model reads of one medium."""


class MediaInPlace(NamedTuple):
    """The numbers of the media that a file becomes, the ids that stand in its place, and what is written before them."""

    media: list[Numbers]
    ids: list[int]
    label: str = ""


@dataclass(frozen=True)
class Wording:
    """What a text with media has beside them, as the processor of a model writes it.

    alone:  what stands before a text without placeholders; by default, the placeholders.
    reads:  further control tokens that such a text may have.
    around: the text in the place of a file that becomes these media, in which the placeholder stands once for each; by
            default, one placeholder for all.
    last:   ids after the last medium.
    end:    the end of the text.
    framed: whether the tokenizer's special tokens stand around the text.
    """

    alone: str = ""
    reads: tuple[str, ...] = ()
    around: Callable[[Sequence[MediaInPlace]], str] | None = None
    last: tuple[int, ...] = ()
    end: str = ""
    framed: bool = True


@dataclass(frozen=True, eq=False)
class MediumReader:
    """How a model reads one kind of media.

    name:   of the medium, such as "image".
    marker: the placeholder as texts have it, such as `<image>`.
    token:  the id of the placeholder.
    read:   a file, or what else `data.media.given` takes, as the numbers that the model reads. Raises ValueError.
    tokens: how many vectors numbers of a shape become.
    before, after: ids around the vectors of each medium.
    cut:    a file as several media, such as the tiles of a picture, for each of its placeholders; by default, it is one.
    words:  what else stands in texts with such media.
    medium: the medium of the model that reads the numbers, if it has another name: pictures and videos may be of one.
    """

    name: str
    marker: str
    token: int
    read: Callable[[object], Array]
    tokens: Callable[[tuple[int, ...]], int]
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    cut: Callable[[object], list[MediaInPlace]] | None = None
    words: Wording = Wording()
    medium: str | None = None

    def places(self, file: object) -> list[MediaInPlace]:
        """The media of a file. Raises ValueError if it can't be read."""
        if self.cut is not None:
            return self.cut(file)
        numbers = self.read(file)
        return [MediaInPlace([numbers], [*self.before, *[self.token] * self.tokens(numbers.shape), *self.after])]

    def texts(self, found: Sequence[Sequence[MediaInPlace]]) -> list[str] | None:
        """The texts in the places of files with these media; None if each is the placeholder."""
        around = self.words.around
        return None if around is None else [around(places) for places in found]


@runtime_checkable
class ReadsMedia(Protocol):
    """A task whose model reads media beside texts."""

    def media_readers(self, tokenizer: Tokenizer) -> tuple[MediumReader, ...]: ...

    def framed(self, ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
        """What the model reads before its answer to a question, in which one token stands for each medium."""
        ...

    def check_room(self, question: str, prompt: Sequence[int]) -> None: ...


class PlacedMedia(NamedTuple):
    """Tokens with media in their places. `origins` are the indices of the tokens that they were made of."""

    ids: list[int]
    origins: list[int]
    media: dict[str, list[Numbers]]


Found = Mapping[str, list[list[MediaInPlace]]]
"""The media of each file, by the names of their kinds."""


def placed(ids: Sequence[int], readers: Sequence[MediumReader], files: Files, where: str = "the text") -> PlacedMedia:
    """Put media in the places of placeholders, one of which stands for each file.

    Raises ValueError if there are more or fewer files than placeholders, and for a file that can't be read.
    """
    check_counts({reader.marker: list(ids).count(reader.token) for reader in readers}, readers, files, where)
    return spread(ids, readers, found_in(readers, files), where)


def found_in(readers: Sequence[MediumReader], files: Files) -> Found:
    """The media of files. Raises ValueError for a file that can't be read."""
    return {reader.name: [reader.places(file) for file in files.get(reader.name, ())] for reader in readers}


def written(text: str, readers: Sequence[MediumReader], found: Found) -> str:
    """A text as the processor of a model writes it around the media that were found."""
    for reader in readers:
        texts = reader.texts(found[reader.name])
        if texts is not None:
            text = "".join(part + more for part, more in zip_longest(text.split(reader.marker), texts, fillvalue=""))
        text += reader.words.end if found[reader.name] else ""
    return text


def spread(ids: Sequence[int], readers: Sequence[MediumReader], found: Found, where: str = "the text") -> PlacedMedia:
    """Put the ids of media in the places of placeholders. Raises ValueError if they differ in number."""
    by_token = {reader.token: reader for reader in readers}
    places = {reader.name: [place for file in found[reader.name] for place in file] for reader in readers}
    check_counts({reader.marker: list(ids).count(reader.token) for reader in readers}, readers, places, where)
    left, made, origins = {name: deque(some) for name, some in places.items()}, list[int](), list[int]()
    media: dict[str, list[Numbers]] = {}
    for i, token in enumerate(ids):
        reader = by_token.get(token)
        if reader is None:
            span = [token]
        else:
            place = left[reader.name].popleft()
            media.setdefault(reader.medium or reader.name, []).extend(place.media)
            span = [*place.ids, *(() if left[reader.name] else reader.words.last)]
        made += span
        origins += [i] * len(span)
    return PlacedMedia(made, origins, media)


def asked(
    task: ReadsMedia, texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[list[list[int]], list[dict[str, list[Numbers]]]]:
    """What a task's model reads of questions, with as many placeholders as each medium has vectors, and their media.

    Raises ValueError if a text has more or fewer files than placeholders, for a file that can't be read, and for a
    question without room for an answer.
    """
    readers = task.media_readers(tokenizer)
    rows, found = list[list[int]](), list[dict[str, list[Numbers]]]()
    for text in texts:
        ids = task.framed(tokenizer.encode(text), tokenizer)
        one = placed(ids, readers, getattr(text, "files", {}), f"the text {brief(text[:60])}")
        task.check_room(text, one.ids)
        rows.append(one.ids)
        found.append(one.media)
    return rows, found


def check_counts(
    counts: Mapping[str, int], readers: Sequence[MediumReader], files: Files, where: str = "the text"
) -> None:
    """Raise ValueError if files and placeholders, counted by their markers, differ in number, or for files of a kind that
    the model doesn't read."""
    known = dict.fromkeys(reader.name for reader in readers)
    for name, given in files.items():
        if name not in known and len(given):
            raise ValueError(
                f"{where} has {counted(len(given), name)} beside it, and this model reads {text_and(known)}"
            )
    for reader in readers:
        there, beside_it = counts[reader.marker], len(files.get(reader.name, ()))
        if there != beside_it:
            raise ValueError(
                f"{where} has {counted(there, 'placeholder')} {reader.marker} and {counted(beside_it, reader.name)} beside "
                f"it; give one {reader.name} for each"
            )


def arrays(numbers: Iterable[Numbers]) -> list[Array]:
    """The numbers of media that have no times."""
    return [one for one in numbers if not isinstance(one, TimedVideo)]


def stacked(media: Sequence[Mapping[str, Sequence[Numbers] | Tensor]]) -> dict[str, Values]:
    """The media of several texts, one text's after the other's: tensors (N, …), or lists if their sizes differ."""
    names = dict.fromkeys(name for one in media for name in one)
    return {name: _joined([each for one in media for each in one.get(name, ())]) for name in names}


def _joined(numbers: Sequence[Numbers | Tensor]) -> Values:
    if any(isinstance(each, TimedVideo) for each in numbers):
        return [each if isinstance(each, TimedVideo) else torch.as_tensor(each) for each in numbers]
    values = [torch.as_tensor(each) for each in numbers]
    return torch.stack(values) if len({value.shape for value in values}) == 1 else values


# -- texts and the files beside them -------------------------------------------------------------------------------------


def beside(texts: Sequence[str], readers: Sequence[MediumReader], files: Files) -> list[TextWithFiles]:
    """Give texts their files, in the order of the placeholders of all texts; if there are as many as each text has
    placeholders, all texts have the same. A text gets placeholders before it if no text has any of a kind.

    Raises ValueError if there are more or fewer files than placeholders.
    """
    given = {name: list(some) for name, some in files.items() if len(some)}
    markers = {reader.name: reader.marker for reader in readers}
    alone = {reader.name: reader.words.alone or reader.marker for reader in readers}
    if unknown := [name for name in given if name not in markers]:
        check_counts(
            {reader.marker: 0 for reader in readers}, readers, {unknown[0]: given[unknown[0]]}, _counted(texts)
        )
    missing = [name for name in given if not any(markers[name] in text for text in texts)]
    before = "".join(alone[name] * (len(given[name]) if len(texts) == 1 else 1) for name in missing)
    texts = [before + text for text in texts]
    shares = {name: list(_shares(texts, name, marker, given.get(name, []))) for name, marker in markers.items()}
    return [
        TextWithFiles(text, {name: tuple(shares[name][i]) for name in markers if shares[name][i]})
        for i, text in enumerate(texts)
    ]


def parts_of(text: str, readers: Sequence[MediumReader]) -> str | list[dict[str, object]]:
    """The content of a message: a text without files as it is, and one with files as parts, each medium at its place."""
    files: Files = getattr(text, "files", {})
    if not files:
        return str(text)
    kinds, left = {reader.marker: reader.name for reader in readers}, {name: iter(some) for name, some in files.items()}
    parts: list[dict[str, object]] = []
    for piece in re.split("|".join(f"({re.escape(marker)})" for marker in kinds), text):
        if piece in kinds and kinds[piece] in left:
            parts.append({"type": kinds[piece], kinds[piece]: next(left[kinds[piece]])})
        elif piece:
            parts.append({"type": "text", "text": piece})
    return parts


def _shares(texts: Sequence[str], name: str, marker: str, given: list[object]) -> Iterator[list[object]]:
    """The files of each text."""
    counts = [text.count(marker) for text in texts]
    if len(given) == sum(counts):
        at = 0
        for count in counts:
            yield given[at : at + count]
            at += count
    elif given and all(count == len(given) for count in counts):
        yield from ([*given] for _ in texts)
    else:
        raise ValueError(
            f"{_counted(texts)} {'has' if len(texts) == 1 else 'have'} {counted(sum(counts), 'placeholder')} {marker} "
            f"and {counted(len(given), name)} beside {'it' if len(texts) == 1 else 'them'}; give one {name} for each "
            "placeholder, or as many as each text has for all"
        )


def _counted(texts: Sequence[str]) -> str:
    return "the text" if len(texts) == 1 else counted(len(texts), "text")
