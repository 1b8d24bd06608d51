"""Files beside texts: pictures, videos and sounds that a run reads in the places of placeholders, such as `<image>`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core import several
from ....core.spec import brief, counted
from ....data.readers.jsonl import with_paths
from ....data.tokenizers.chat.conversations import Places
from ....data.tokenizers.chat.messages import Messages, Tools, check_messages, files_in, messages_in
from ....data.tokenizers.pipelines import any_of
from ....data.tokenizers.tokenizer import Tokenizer
from ....generation.settings import SingleOutputOptions
from ....nn.models.joint import Medium
from ...tasks import media
from ...tasks.media import Files, MediumReader, Numbers, PlacedMedia, ReadsMedia, TextWithFiles
from .. import unknown_words
from ..loaded import LoadedModel, TextMedia
from .processors import marker_of, of_directory, videos_of_directory

Given = Sequence[object] | object | None
"""Files of one kind: a path, the bytes of a file, an array, a picture of Pillow, a pair with a rate, or a list of these."""


class OptionsWithFiles(SingleOutputOptions, total=False):
    """The fields of `Generation` as keyword options, except `num_samples`, and files beside texts."""

    images: Given
    sounds: Given
    videos: Given


def readers_of(run: LoadedModel) -> tuple[MediumReader, ...]:
    """How a run reads each kind of media: as its task does, or as the `preprocessor_config.json` of its directory says.

    Raises ValueError for a run that reads texts alone, and for one that doesn't say how its pictures become numbers.
    """
    seen, task = run.media, run.trained_on
    if not seen:
        raise ValueError(f"{run.name} reads no pictures, sounds or videos in the places of tokens; leave them out")
    if isinstance(task, ReadsMedia):
        return task.media_readers(run.words)
    videos = (videos_of_directory(run, medium) for medium in seen)
    return (*(of_directory(run, medium) for medium in seen), *(reader for reader in videos if reader is not None))


def files_of(images: Given = None, sounds: Given = None, videos: Given = None) -> dict[str, list[object]]:
    """Files by the names of their media; a single one is a list of one."""
    given = {"image": images, "sound": sounds, "video": videos}
    return {name: _listed(some) for name, some in given.items() if some is not None}


def _listed(some: Any) -> list[object]:
    many = isinstance(some, list) or (
        isinstance(some, tuple) and not (len(some) == 2 and isinstance(some[1], int | float))
    )
    return list(some) if many else [some]


def read(
    run: LoadedModel, texts: Sequence[str], images: Given = None, sounds: Given = None, videos: Given = None
) -> tuple[list[list[int]], Sequence[TextMedia]]:
    """The ids of texts; and the media of each, if there are files beside the texts or placeholders in them."""
    if files := files_of(images, sounds, videos):
        texts = beside(run, several.texts(texts), files)
    if any(isinstance(text, TextWithFiles) for text in texts) or _has_places(run, texts):
        rows, found = prompts(run, texts)
        names = any_of(name for reader in readers_of(run) for name in (reader.marker, *reader.words.reads))
        texts = [names.sub("", text) for text in texts]
    else:
        rows, found = list(map(run.encode, several.texts(texts))), []
    unknown_words.warn(run, texts, rows)
    return rows, found


def _has_places(run: LoadedModel, texts: Sequence[str]) -> bool:
    """Whether a text has a placeholder of a medium that the run reads."""
    names = {name for medium in run.media for name in _names(run, medium)}
    return any(name in text for name in names if name for text in several.texts(texts))


def _names(run: LoadedModel, medium: Medium) -> list[str | None]:
    """The placeholders of a medium."""
    ids = [medium.token, *([] if medium.video is None else [medium.video])]
    return [marker_of(run, medium), *map(run.words.raw.id_to_token, ids)]


def beside(run: LoadedModel, texts: Sequence[str], files: Mapping[str, Sequence[object]]) -> list[TextWithFiles]:
    """Texts with the files that stand in them, see `tasks.media.beside`."""
    return media.beside(texts, readers_of(run), files)


def prompts(run: LoadedModel, texts: Sequence[str]) -> tuple[list[list[int]], list[dict[str, list[Numbers]]]]:
    """Return the token ids and the media of each text. A placeholder is repeated once for each vector of its medium.

    Raises ValueError if a text has more or fewer files than placeholders, for a file that can't be read, and for a
    question without room for an answer.
    """
    readers, task = readers_of(run), run.trained_on
    if isinstance(task, ReadsMedia):
        return media.asked(task, texts, run.words)
    tokenizer = run.words.reading(*(name for reader in readers for name in (reader.marker, *reader.words.reads)))
    found = [_placed(run, text, readers, tokenizer) for text in texts]
    return [one.ids for one in found], [one.media for one in found]


def _placed(run: LoadedModel, text: str, readers: Sequence[MediumReader], tokenizer: Tokenizer) -> PlacedMedia:
    """The ids of a text as the processor of a directory writes it, and its media."""
    files: Files = getattr(text, "files", {})
    counts, where = {reader.marker: text.count(reader.marker) for reader in readers}, f"the text {brief(text[:60])}"
    media.check_counts(counts, readers, files, where)
    found = media.found_in(readers, files)
    whole = media.written(text, readers, found)
    framed = not files or all(reader.words.framed for reader in readers)
    ids = run.encode(whole, tokenizer) if framed else tokenizer.encode(whole)
    return media.spread(ids, readers, found, where)


def conversation(
    run: LoadedModel, messages: Messages, tools: Tools = None
) -> tuple[list[int], dict[str, list[Numbers]]]:
    """The ids of a conversation up to the model's reply, and the media of its parts.

    Raises ValueError for a part that the run doesn't read, and for a file that can't be read.
    """
    template, readers = run.words.chat, readers_of(run) if run.media else ()
    if not readers:
        return template.prompt(messages, tools, {}), {}
    found = media.found_in(readers, files_in(check_messages(messages)))
    places = {
        reader.name: Places(
            reader.marker, reader.texts(found[reader.name]), reader.words.end * bool(found[reader.name])
        )
        for reader in readers
    }
    one = media.spread(template.prompt(messages, tools, places), readers, found, "the conversation")
    return one.ids, one.media


def content(run: LoadedModel, text: str) -> str | list[dict[str, object]]:
    """The content of a message: a text, or with files beside it a list of parts."""
    return media.parts_of(text, readers_of(run)) if isinstance(text, TextWithFiles) else text


def conversation_in(text: str, folder: Path) -> list[dict[str, object]] | None:
    """The messages in a text that is JSON, a list of them or a record that has one, up to the last one that is not the
    assistant's; None for any other text. Their files lie in a folder.

    Raises ValueError for messages that are not valid.
    """
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found = messages_in(value if isinstance(value, dict) else {"messages": value}, "messages")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        return None
    checked = with_paths(check_messages(found), folder)
    while checked and checked[-1]["role"] == "assistant":
        checked.pop()
    return checked or None


def with_files(
    run: LoadedModel, messages: Messages, images: Given = None, sounds: Given = None, videos: Given = None
) -> list[dict[str, object]]:
    """Messages with files: for the parts that have none, such as `{"type": "image"}`, or else in the user's first message,
    as `beside` puts them into a text.

    Raises ValueError if files and places differ in number.
    """
    checked, files = check_messages(messages), files_of(images, sounds, videos)
    open_parts = [
        part
        for message in checked
        for part in (message["content"] if isinstance(message["content"], list) else ())
        if part["type"] in files and part[part["type"]] is None
    ]
    if not open_parts:
        first = next((one for one in checked if one["role"] == "user" and isinstance(one["content"], str)), None)
        if first is None:
            raise ValueError("no message of the user has a place for files; write a part such as {'type': 'image'}")
        first["content"] = media.parts_of(beside(run, [first["content"]], files)[0], readers_of(run))
        return checked
    for name, given_files in files.items():
        places = [part for part in open_parts if part["type"] == name]
        if len(places) != len(given_files):
            raise ValueError(
                f"the conversation has {counted(len(places), 'part')} of the type {name} without a file, and "
                f"{counted(len(given_files), name)} {'is' if len(given_files) == 1 else 'are'} given; give one for each"
            )
        for part, file in zip(places, given_files, strict=True):
            part[name] = file
    return checked
