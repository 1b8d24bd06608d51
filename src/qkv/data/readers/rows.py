"""Examples from rows with named columns: the rows of data frames, datasets and Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter, model_validator

from ...core.json_files import checked
from ...core.optional_libraries import need
from ...core.spec import brief, nearest
from ..classes import is_missing, missing_label
from ..files.csv_header import short
from ..files.documents import text_example
from ..files.inside import inside
from ..files.json_lines import json_value
from ..holdout import HoldOutSource
from ..media import audio, video
from ..media.exif import ORIENTATION, UPRIGHT
from ..shuffle import text_hash
from ..source import TEXTS, Example, Skipped, Table
from .jsonl import conversation
from .multiple_choice import choice_example
from .parallel_text import pair
from .squad import answered_example

Columns = Mapping[str, str | tuple[str, ...]]
"""The column of each field of an example, dotted if nested; `choices` may be several columns."""

_FIELDS = (
    *(
        "text",
        "pair",
        "label",
        "score",
        "source",
        "target",
        "messages",
        "tools",
        "words",
        "tags",
        "context",
        "question",
        "answers",
    ),
    *("answer", "start", "choices", "image", "mask", "audio", "video"),
)
_CONTENTS = (
    "text",
    "source",
    "messages",
    "words",
    "question",
    "image",
    "audio",
    "video",
)  # an example has one at least
_REQUIRED = ("text", "source", "target", "label", "score")  # a row without one is skipped if its column is named
_DEFAULTS = {"words": ("words", "tokens"), "tags": ("tags", "ner_tags")}  # columns, by field
_FILES = ("image", "mask", "audio", "video")  # fields that may be the path of a file
_LIST = TypeAdapter(list[Any])
_INSPECTED = 100  # rows among which the first that is not skipped shows what they hold
_LONGEST = 500  # characters of what Python says of a value, which it quotes whole
_SETTINGS = {"words": "word", "tags": "tag"}  # by field, if the names differ


class RowSource(HoldOutSource):
    """Base class of sources whose examples are rows with named columns.

    Each of these settings is the name of the column with a field of the examples, dotted if nested (`translation.en`).
    By default, columns have the names of fields.

    text, pair, label, score: a text, perhaps with a second one, and its class or a number.
    source, target:           two texts, or a prompt and its answer.
    messages, tools:          a conversation, a list of `role` and `content`, and the tools that it may call.
    word, tag:                lists of the words of a sentence (by default `words` or `tokens`) and of their tags (`tags` or
                              `ner_tags`).
    context, question, answers: a question on a text, and its answers as in the data set squad, lists `text` and
                              `answer_start`; or its `answer`, which begins at the character `start` of the text.
    text, choices, answer:    a question, a list of candidates (or several columns), and the right one: its number from 0,
                              its letter from A, or its text.
    image, mask:              a picture, and the class of each of its pixels.
    audio, video:             a sound; a video.

    missing: texts that stand for no label; by default as in pandas, such as "nan", "NA" and "None".
    """

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    score: str | None = None
    source: str | None = None
    target: str | None = None
    messages: str | None = None
    tools: str | None = None
    word: str | None = None
    tag: str | None = None
    context: str | None = None
    question: str | None = None
    answers: str | None = None
    answer: str | None = None
    start: str | None = None
    choices: str | tuple[str, ...] | None = None
    image: str | None = None
    mask: str | None = None
    audio: str | None = None
    video: str | None = None
    missing: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _columns_agree(self) -> Self:
        if (self.source is None) != (self.target is None):
            raise ValueError("give both columns source and target, or neither")
        if self.source is not None and self.text is not None:
            raise ValueError("give the columns source and target, or the column text, not both")
        return self

    def columns_among(self, existing: Sequence[str], where: str | None) -> Columns:
        """The column of each field. Raises ValueError that names `where` if a column is not among the existing ones, or if
        there is none to learn from."""
        given = {name: getattr(self, _SETTINGS.get(name, name)) for name in _FIELDS}
        columns: dict[str, str | tuple[str, ...]] = {name: value for name, value in given.items() if value is not None}
        if not columns.keys() & set(_CONTENTS):
            for name in _CONTENTS if columns else _FIELDS:
                column = next((one for one in _DEFAULTS.get(name, (name,)) if one in existing), None)
                columns |= {} if column is None or name in columns else {name: column}
        if not columns.keys() & set(_CONTENTS):
            raise ValueError(
                f"{where} has the columns {', '.join(short(existing))}; name those to read, such as data.text={existing[0]}"
            )
        for name in flat(columns):
            top = name.partition(".")[0]
            if top not in existing:
                raise ValueError(f"{where} has no column {brief(top)}; {nearest(top, existing)}")
        return columns

    def reader(
        self,
        existing: Sequence[str],
        features: Mapping[str, Any] | None,
        where: str | None,
        folders: tuple[Path, ...],
    ) -> RowReader:
        """The reader of rows with these columns and `features`, see `columns_among` and `class_names_of`. Files that rows
        name are read from these folders only."""
        columns = self.columns_among(existing, where)
        named = [name for name in _REQUIRED if getattr(self, name) is not None]
        return RowReader(columns, class_names_of(features or {}, flat(columns)), named, folders, self.missing)

    @property
    def compared(self) -> bool:
        """Whether the first rows hold texts alone. Comparing pictures, sounds and videos would take too long."""
        table = self.readable("train")
        rows = (table[i] for i in range(min(len(table), _INSPECTED))) if self.fixed else ()
        first = next((row for row in rows if isinstance(row, dict)), {})
        return bool({*TEXTS} & first.keys()) and not {"image", "audio", "video"} & first.keys()

    def hold_out_key(self, table: Table, i: int, example: Example) -> int:
        return row_hold_out_key(example) or super().hold_out_key(table, i, example)


class RowTable:
    """The examples of rows; `labels` are read without pictures and sounds."""

    def __init__(self, rows: Any, reader: RowReader, where: str, labels: Sequence[Any] | None = None) -> None:
        self._rows, self._reader, self._where = rows, reader, where
        if labels is not None:
            self.labels = [reader.label(value) for value in labels]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int) -> Example | Skipped:
        return self._reader.example(self._rows[i], f"{self._where}, row {i + 1:,}")


@dataclass(frozen=True)
class RowReader:
    """Reads rows as examples.

    columns:     the columns of fields; without any, each column is a field of its name.
    class_names: the names of classes by column, if rows have their numbers.
    required:    fields without which a row is skipped.
    folders:     the folders of the files that rows may name; None if the rows are the user's own.
    missing:     texts that stand for no label, unless they are the names of classes; by default `classes.MISSING`.
    """

    columns: Columns = field(default_factory=dict)
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    required: Sequence[str] = ()
    folders: tuple[Path, ...] | None = None
    missing: tuple[str, ...] | None = None

    def example(self, row: Mapping[str, Any], where: str) -> Example | Skipped:
        """The example in a row, in the form that file sources give, or the reason to skip it. A label or a score that is
        missing in a column that was not named is a `Skipped`, for tasks that need it."""
        columns = self.columns or {name: name for name in row}
        fields = {name: self._value(row, column, where) for name, column in columns.items()}
        for name in ("label", "score"):
            if name in fields and (lacking := self._lacking(fields[name], columns[name])):
                if name in self.required:
                    return Skipped(lacking, where)
                fields[name] = lacking
        empty = [name for name, value in fields.items() if is_missing(value)]
        fields = {name: value for name, value in fields.items() if name not in empty}
        contents = [name for name in empty if name in _CONTENTS and not fields.keys() & {*_CONTENTS}]
        if texts := [*contents, *(name for name in empty if name == "pair")]:
            return Skipped(f"without a text {columns[texts[0]]!r}", where)
        for name in _FILES if self.folders is not None else ():
            if isinstance(path := _content(fields.get(name)), str):
                fields[name] = self._located(path, f"{where}: {columns[name]}")
        for name in self.required:
            if name not in fields:
                return Skipped(f"without a text {columns[name]!r}", where)
        try:
            return _example(fields, where)
        except ValueError as error:
            said = str(error) if len(str(error)) <= _LONGEST else brief(str(error))
            raise error if where in said else ValueError(f"{where}: {said}") from None
        except (TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{where} has a field of another form than its name says ({brief(str(error))}); its fields are "
                f"{', '.join(short(list(fields)))}"
            ) from None

    def _located(self, name: str, where: str) -> str:
        """The path of a file that a row names, in the first folder that has it."""
        assert self.folders
        found = []
        for folder in self.folders:
            with suppress(ValueError):
                found.append(inside(folder, name, where))
        first = next((path for path in found if path.is_file()), found[0] if found else None)
        return str(first or inside(self.folders[0], name, where))

    @property
    def tops(self) -> tuple[str, ...]:
        """The columns of rows, without the names of what is nested in them."""
        return tuple(dict.fromkeys(name.partition(".")[0] for name in flat(self.columns)))

    def label(self, value: object) -> Any:
        """The label of a row with this value in the column of labels."""
        column = self.columns.get("label", "label")
        names = self.class_names.get(str(column))
        value = value if names is None else _named(value, names)
        return self._lacking(value, column) or _label(value)

    def _lacking(self, value: Any, column: str | tuple[str, ...]) -> Skipped | None:
        """Why a label is missing; None if it isn't."""
        return missing_label(value, column, () if column in self.class_names else self.missing)

    def _value(self, row: Mapping[str, Any], column: str | tuple[str, ...], where: str) -> Any:
        if not isinstance(column, str):
            return [self._value(row, name, where) for name in column]
        if column in row:
            value = row[column]
        elif column.partition(".")[0] in row:
            value = json_value(row, column)
        else:
            raise ValueError(f"{where} has no column {brief(column)}; {nearest(column, row)}")
        names = self.class_names.get(column)
        return value if names is None else _named(value, names)


def class_names_of(features: Mapping[str, Any], columns: Iterable[str]) -> dict[str, Sequence[str]]:
    """The names of classes by column, from the features of a dataset in their JSON form: `{"label": {"names": …}}`."""
    names: dict[str, Sequence[str]] = {}
    for column in columns:
        feature: Any = features
        for part in column.split("."):
            feature = _element(feature)
            feature = feature.get(part) if isinstance(feature, Mapping) else None
        feature = _element(feature)
        if isinstance(feature, Mapping) and feature.get("_type") == "ClassLabel":
            names[column] = feature["names"]
    return names


def _element(feature: Any) -> Any:
    """The feature of a list's elements; any other feature as it is."""
    while isinstance(feature, list) or (isinstance(feature, Mapping) and isinstance(feature.get("_type"), str)):
        inner = feature[0] if isinstance(feature, list) else feature.get("feature")
        if inner is None:
            return feature
        feature = inner
    return feature


def flat(columns: Columns) -> Iterator[str]:
    """The names of all columns."""
    for value in columns.values():
        yield from (value,) if isinstance(value, str) else value


def _named(value: Any, names: Sequence[str]) -> Any:
    """The names of a class or of several; a class of −1 is missing."""
    if isinstance(value, list | tuple | np.ndarray):
        return [_named(item, names) for item in value]
    if is_missing(value) or not isinstance(value, int | np.integer) or value < 0:
        return None if is_missing(value) or isinstance(value, int | np.integer) else value
    if value >= len(names):
        raise ValueError(
            f"a class has the number {value}, and there are names for {len(names)}: {', '.join(short(names))}"
        )
    return names[int(value)]


def as_files(data: Any) -> Any:
    """A dataset that gives pictures, sounds and videos as the files that they are; qkv decodes them, not the library."""
    for column, feature in (getattr(data, "features", None) or {}).items():
        if getattr(feature, "decode", False) and hasattr(feature, "decode_example"):
            data = data.cast_column(column, type(feature)(decode=False))
    return data


def row_hold_out_key(example: Example) -> int | None:
    """The hash by which rows that belong together are held out: questions on the same context; None for other rows."""
    return text_hash(example["context"]) if "context" in example else None


# -- fields ------------------------------------------------------------------------------------------------------------


def _example(fields: dict[str, Any], where: str) -> Example | Skipped:
    if "messages" in fields:
        return {**fields, **conversation(_plain(fields["messages"]), where, _plain(fields.get("tools")))}
    for name in ("source", "target", "text", "pair", "question", "context"):
        texts = _texts(fields.get(name, "")) if name == "target" else [fields.get(name, "")]
        if not all(isinstance(text, str) for text in texts):
            return Skipped(f"whose {name} is no text", where)
    checked = _checked(fields, where)
    if isinstance(checked, Skipped):
        return Skipped(checked, where)
    converted = _converted(fields)
    return (
        Skipped(converted, where)
        if isinstance(converted, Skipped)
        else {"where": where, **fields, **checked, **converted}
    )


def _checked(fields: Mapping[str, Any], where: str) -> Example | Skipped:
    """The texts of an example, checked and stripped as in files."""
    if "source" in fields or "target" in fields:
        target, *references = _texts(fields.get("target", ""))
        return pair(fields.get("source", ""), target, references=references)
    if "choices" in fields and "text" in fields:
        return choice_example(fields["text"], _candidates(fields["choices"], where), _answer(fields), where)
    if "context" in fields and "question" in fields and ("answers" in fields or "answer" in fields):
        return answered_example(fields["context"], fields["question"], _answered(fields, where), where, "")
    return text_example(fields["text"]) if "text" in fields else {}


def _texts(target: Any) -> list[Any]:
    """The texts of a target, which may be a list of references."""
    return list(target) if isinstance(target, list | tuple) and len(target) else [target]


def _candidates(choices: Any, where: str) -> list[Any]:
    """The candidates of a question: a list, or a dictionary with a list of them as its `text`."""
    return checked(_LIST, _plain(choices.get("text") if isinstance(choices, Mapping) else choices), f"{where}: choices")


def _answer(fields: Mapping[str, Any]) -> Any:
    """The answer to a question with candidates; the candidates' own labels, such as "A", give its number."""
    answer, choices = fields.get("answer"), fields["choices"]
    labels = _plain(choices.get("label")) if isinstance(choices, Mapping) else None
    return labels.index(answer) if isinstance(labels, list) and answer in labels else answer


def _answered(fields: Mapping[str, Any], where: str) -> list[tuple[Any, Any]]:
    """The answers to a question with their starts in its context, from any of the usual forms."""
    answers: Any = fields.get("answers", fields.get("answer"))
    starts = fields.get("starts", fields.get("start"))
    if isinstance(answers, Mapping):  # as in the data set squad, where unanswerable questions have an empty list
        answers, starts = answers.get("text"), answers.get("answer_start")
    if isinstance(answers, str):
        answers, starts = [answers], [starts]
    texts, firsts = (
        checked(_LIST, _plain(value), f"{where}: {name}") for name, value in (("answers", answers), ("starts", starts))
    )
    if len(texts) != len(firsts):
        raise ValueError(
            f"{where}: there are {len(texts)} answers and {len(firsts)} starts; there has to be one for each"
        )
    return [(text, _plain(start)) for text, start in zip(texts, firsts, strict=True)] or [("", 0)]


def _converted(fields: Mapping[str, Any]) -> Example | Skipped:
    """Labels, tagged words, pictures, sounds and videos, in the form that tasks read."""
    converted: Example = {}
    words, tags = fields.get("words"), fields.get("tags")
    if "label" in fields:
        converted["label"] = _label(fields["label"])
    if words is not None:
        converted["words"] = list(words)
        converted.setdefault("text", " ".join(words))
    if tags is not None:
        converted["tags"] = [tag if isinstance(tag, str) else str(tag) for tag in tags]
    if "image" in fields:
        converted |= _picture(fields["image"])
    if "mask" in fields:
        mask = _content(fields["mask"])
        converted["mask"] = (
            Path(mask) if isinstance(mask, str) else np.asarray(mask) if hasattr(mask, "convert") else mask
        )
    for name, read in (("audio", _sound), ("video", _video)):
        if name in fields:
            media = read(fields)
            if isinstance(media, Skipped):
                return media
            converted |= media
    return converted


def _label(value: Any) -> Any:
    """A class; integers and booleans as texts."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    return str(value) if isinstance(value, int | np.integer) else value


def _picture(value: Any) -> Example:
    """A picture as pixels, the bytes of a file, or a path; tasks decode the latter two. Pixels that EXIF data turn are
    turned, and have their `orientation`."""
    value = _content(value)
    if not hasattr(value, "convert"):
        return {"image": Path(value) if isinstance(value, str) else value}
    need("reading a picture", "PIL")
    from PIL import ImageOps

    orientation = value.getexif().get(ORIENTATION, UPRIGHT)  # of a picture of Pillow
    value = ImageOps.exif_transpose(value)
    gray = value.mode in ("1", "L")
    pixels = np.asarray(value.convert("L" if gray else "RGB"))
    about = {} if orientation == UPRIGHT else {"orientation": orientation}
    return {"image": pixels[None] if gray else pixels.transpose(2, 0, 1), **about}


def _sound(fields: Mapping[str, Any]) -> Example | Skipped:
    """The wave and the rate of a sound: samples with a `rate`, a dictionary of both, a file's bytes or a path."""
    value = _content(fields["audio"])
    if isinstance(value, Mapping) and "array" in value:
        return {"audio": _wave(value["array"]), "rate": int(value["sampling_rate"])}
    if isinstance(value, bytes | str | Path):
        sound = audio.decode(value) if isinstance(value, bytes) else audio.read(value)
        return sound if isinstance(sound, Skipped) else {"audio": sound[0], "rate": sound[1]}
    return {"audio": _wave(value)}


def _wave(samples: Any) -> audio.Wave:
    """One channel of floats; several channels (channels, samples) are averaged."""
    wave = np.asarray(samples, np.float32)
    return wave if wave.ndim == 1 else wave.mean(0)


def _video(fields: Mapping[str, Any]) -> Example | Skipped:
    value = _content(fields["video"])
    if isinstance(value, bytes | str | Path):
        frames = video.decode_frames(value) if isinstance(value, bytes) else video.read(value)
        return frames if isinstance(frames, Skipped) else {"video": frames}
    return {"video": np.asarray(value, np.uint8)}


def _content(value: Any) -> Any:
    """The bytes or else the path in a file of the library datasets, `{"bytes": …, "path": …}`; another value as it is."""
    if isinstance(value, Mapping) and "bytes" in value:
        return value["path"] if value["bytes"] is None else value["bytes"]
    return value


def _plain(value: Any) -> Any:
    """A NumPy array or number, or a tuple, as a list or a number of Python's own."""
    return (
        value.tolist()
        if isinstance(value, np.ndarray | np.generic)
        else list(value)
        if isinstance(value, tuple)
        else value
    )
