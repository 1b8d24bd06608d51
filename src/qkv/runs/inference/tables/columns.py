"""Which columns of a table a run reads: the columns of its training data, or columns with usual names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.spec import brief, nearest
from ....data.files.csv_header import short
from ....data.files.number_tables import finite
from ....data.files.records import FORMATS
from ....data.media.image_files import SUFFIXES as IMAGES
from ....data.media.video import SUFFIXES as VIDEOS
from ....data.readers.audio import SUFFIXES as SOUNDS
from ....nn.models.heads.text import Span
from ..loaded import LoadedModel, has_towers
from ..uses import reads_text

# fmt: off
USUAL: dict[str, tuple[str, ...]] = {
    "text": (
        "text", "sentence", "sentence1", "texts", "message", "review", "body", "content", "comment", "tweet",
        "premise",
        "title", "description", "document", "query", "question", "prompt", "tokens", "words",
    ),
    "pair": ("pair", "text_pair", "sentence2", "hypothesis", "text2"),
    "question": ("question", "query"),
    "context": ("context", "passage", "paragraph", "document", "text"),
    "choices": ("choices", "endings", "options", "candidates"),
    "source": ("source", "src", "text", "sentence", "prompt"),
    "target": ("target", "tgt", "translation", "answer"),
    "image": ("image", "file", "path", "filename", "file_name", "picture", "img"),
    "audio": ("audio", "file", "path", "filename", "file_name", "sound"),
    "video": ("video", "file", "path", "filename", "file_name"),
}
# fmt: on
"""The usual names of the columns with each input."""

_SETTINGS = {"source": ("source_column", "prompt"), "target": ("target_column", "answer"), "image": ("image_field",)}
_FILES = {
    "sound": ("audio", SOUNDS, "sound"),
    "video-classify": ("video", VIDEOS | {".gif"}, "video"),
    "music": ("image", frozenset({".mid", ".midi"}), "MIDI file"),
    "forecast": ("image", frozenset({*FORMATS, ".txt", ".text"}), "series"),
}


def reads_files(run: LoadedModel, command: str = "") -> bool:
    """Whether the inputs of a run are files: pictures, sounds, videos, series or music. A dual encoder classifies pictures,
    and takes texts and pictures otherwise."""
    return not reads_text(run) or (command == "classify" and has_towers(run))


def files_of(run: LoadedModel) -> tuple[frozenset[str], str]:
    """The suffixes of the files that a run reads, and what one of them is."""
    task = run.trained_on
    _, suffixes, noun = _FILES.get("" if task is None else task.kind or "", ("image", IMAGES, "picture"))
    return frozenset(suffixes), noun


def fields_of(run: LoadedModel, command: str) -> dict[str, bool]:
    """The inputs that a command reads for a run, in its order, and whether each has to be there."""
    task = run.trained_on
    kind = None if task is None else task.kind
    if reads_files(run, command):
        field = _FILES.get(kind or "", ("image", IMAGES, ""))[0]
        return {field: True, **({"question": False} if kind in ("caption", "see") else {})}
    if command in ("translate", "generate", "score"):
        encoder_decoder = run.model.is_encoder_decoder
        first = "source" if encoder_decoder else "text"
        return {first: True, **({"target": True} if command == "score" and run.task != "continue" else {})}
    if command in ("predict", "classify"):
        if kind == "answer" or (task is None and isinstance(getattr(run.model.spec, "head", None), Span)):
            return {"question": True, "context": True}
        if kind == "choice":
            return {"text": True, "choices": True}
        if kind in ("classify", "regress", "similarity") or task is None:
            return {"text": True, "pair": kind == "similarity" or _trained_column(run, "pair") is not None}
    return {"text": True}


def found(run: LoadedModel, command: str, names: Sequence[str]) -> dict[str, str | None]:
    """The column of each input among the names of columns; None if no name is a usual one."""
    columns: dict[str, str | None] = {}
    for field in fields_of(run, command):
        own, taken = _trained_column(run, field), set(columns.values())
        column = own if isinstance(own, str) and own.split(".")[0] in names else None
        free = [name for name in names if name not in taken]
        wanted = (own, *USUAL[field]) if isinstance(own, str) else USUAL[field]
        columns[field] = column or next((there for name in wanted if (there := spelled(name, free)) is not None), None)
    return columns


def reads_numbered(run: LoadedModel, command: str) -> bool:
    """Whether the training data of a run were columns by number."""
    return any(isinstance(_trained_column(run, field), int) for field in fields_of(run, command))


def spelled(wanted: str, names: Sequence[str]) -> str | None:
    """The name among `names` that is `wanted`, or, if there is none, the first that is in another case."""
    return wanted if wanted in names else next((name for name in names if name.casefold() == wanted.casefold()), None)


def choose(
    run: LoadedModel,
    command: str,
    path: Path,
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    chosen: Sequence[str],
) -> tuple[str, ...]:
    """The columns that a run reads of a table. Raises ValueError, naming the existing columns, if that can't be
    told."""
    if chosen:
        for name in chosen:
            if name.split(".")[0] not in names and name not in names:
                raise ValueError(f"{brief(path)} has no column {brief(name)}; {nearest(name, short(names))}")
        return tuple(chosen)
    fields, columns = fields_of(run, command), found(run, command, names)
    for field, needed in fields.items():
        if columns[field] is None and needed:
            columns[field] = _only(run, field, names, rows, [name for name in columns.values() if name])
    missing = [field for field, needed in fields.items() if needed and columns[field] is None]
    if missing:
        options = " ".join("--column NAME" for needed in fields.values() if needed)
        raise ValueError(
            f"{brief(path)} has the columns {', '.join(short(names))}; name the one with the {' and the '.join(missing)}: "
            f"{options}"
        )
    return tuple(column for column in columns.values() if column is not None)


def _only(
    run: LoadedModel, field: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]], taken: Sequence[str]
) -> str | None:
    """The column by its number in the training data, or the only one that holds texts; None if there are several, or if
    it holds numbers alone beside other columns, as an `id` does."""
    number = _trained_column(run, field)
    if isinstance(number, int) and str(number) in names:
        return str(number)
    texts = [name for name in names if name not in taken and any(isinstance(row.get(name), str) for row in rows[:100])]
    if len(texts) != 1:
        return None
    cells = [cell for row in rows[:100] if (cell := row.get(texts[0])) not in (None, "")]
    return texts[0] if len(names) == 1 or any(finite(cell) is None for cell in cells) else None


def _trained_column(run: LoadedModel, field: str) -> Any:
    """The setting of the training data that names the column of an input; None if there is none."""
    data = None if run.recipe is None else run.recipe.data
    for setting in (*_SETTINGS.get(field, ()), *(() if field == "source" else (field,))):
        value = getattr(data, setting, None)
        value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        if isinstance(value, str | int):
            return value
    return None
