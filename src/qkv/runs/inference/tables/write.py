"""Results of a run as columns beside the input's columns: CSV, TSV, JSON, JSON Lines and Parquet, written whole."""

from __future__ import annotations

import base64
import datetime
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.atomic import write_file
from ....core.json_files import rows_in
from ....core.optional_libraries import optional_library
from ....core.spec import brief
from ....data.files.csv_dialect import written
from ....data.files.records import FORMATS
from ....io.directories.layout import claim_output
from ...tasks.classes import Classified
from ...tasks.prediction import Prediction
from .read import FileTable, Row, names_a_file


def is_output(path: Path) -> bool:
    """Whether a name is that of a table that is written."""
    return path.suffix.lower() in FORMATS


def check_folder(path: Path) -> None:
    """Raise ValueError if the output folder is named like a file, such as a table in a form that isn't written."""
    if names_a_file(path) and not path.is_dir():
        raise ValueError(f"--out is a folder, or a table that ends in {', '.join(FORMATS)}, not {brief(path)}")


ARRAY = ".npy"


def check_output(path: Path, inputs: Iterable[Path], overwrite: bool, more: Sequence[str] = ()) -> None:
    """Raise ValueError if a table can't be written to `path`: it is an input, it exists, its folder does not, or its name
    shows no form, of tables or one of `more`."""
    if path.suffix.lower() not in (*FORMATS, *more):
        raise ValueError(f"--out is a file that ends in {', '.join((*FORMATS, *more))}, not {brief(path)}")
    claim_output(path, overwrite, inputs)
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent}; create it first")


def class_columns(result: Classified) -> Row:
    """A class in columns: `prediction`, its `probability`, and the `probabilities` of all classes by name."""
    probabilities = dict(sorted(result.probabilities.items()))
    return {"prediction": result.label, "probability": probabilities[result.label], "probabilities": probabilities}


def result_of(prediction: Prediction) -> Row:
    """A prediction in columns: `prediction`, its `probability` if the task has one, and what else is known of it."""
    fields = dict(prediction.fields)
    rest = {name: value for name, value in fields.items() if name not in ("words", "question", "prompt", "size")}
    if "label" in fields:
        return class_columns(prediction.value)
    if "tags" in fields:
        return {"prediction": " ".join(rest.pop("tags")), **rest}
    if "choice" in fields:
        probabilities = [one["probability"] for one in fields["choices"]]
        chosen = {"prediction": fields["choice"], "probability": probabilities[fields["number"]]}
        return {**chosen, "number": fields["number"], "probabilities": probabilities}
    if "shares" in fields:
        return {"prediction": max(fields["shares"], key=fields["shares"].__getitem__), **rest}
    main = next((name for name in ("answer", "output", "objects", "values", "score") if name in rest), None)
    return rest if main is None else {"prediction": rest.pop(main), **rest}


def write_table(path: Path, table: FileTable, results: Sequence[Row | None]) -> tuple[str, ...]:
    """Write the rows of a table with the results beside them, None for a row without one. Returns notes for the user.

    The form is that of the name of `path`. The file is written whole, under another name, and renamed.
    """
    form = FORMATS[path.suffix.lower()]
    results = [result if result is None or form == "jsonl" else _flat(result) for result in results]
    added = list(dict.fromkeys(name for result in results if result is not None for name in result))
    renamed = _renamed(added, table.names)
    names = [*table.names, *renamed.values()]
    rows = [
        {**row, **{renamed[name]: None if result is None else result.get(name) for name in added}}
        for row, result in zip(table.rows, results, strict=True)
    ]
    if form == "parquet":
        content = _parquet(path, table, {name: [row[name] for row in rows] for name in renamed.values()})
    elif form == "jsonl":
        content = rows_in(path, map(_plain, rows)).encode("utf-8", "backslashreplace")
    else:
        delimiter = "\t" if form == "tsv" else "," if table.delimiter == "\t" else table.delimiter
        content = _cells(names, rows, delimiter).encode("utf-8", "backslashreplace")
    write_file(path, content)
    taken = [(name, free) for name, free in renamed.items() if name != free]
    if not taken:
        return ()
    old, new = (" ".join(map(repr, names)) for names in zip(*taken, strict=True))
    return (f"the input has the columns {old} already; the new ones are {new}",)


def _renamed(added: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Map each new column to its name in the table, with a number appended if another column has the same name."""
    renamed: dict[str, str] = {}
    for name in added:
        taken = {*names, *renamed.values(), *(other for other in added if other != name)}
        renamed[name] = next(free for free in _numbered(name) if free not in taken)
    return renamed


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(2))


def _flat(result: Row) -> dict[str, Any]:
    """A result in cells: what is nested by name becomes columns, `probabilities` of the class A `probability_A`."""
    flat: dict[str, Any] = {}
    for name, value in result.items():
        if isinstance(value, Mapping):
            stem = {"probabilities": "probability", "shares": "share"}.get(name, name)
            flat |= {f"{stem}_{key}": item for key, item in value.items()}
        else:
            flat[name] = value
    return flat


def _cells(names: Sequence[str], rows: Iterable[Row], delimiter: str) -> str:
    return written([names, *([_cell(row.get(name)) for name in names] for row in rows)], delimiter)


def _cell(value: Any) -> Any:
    plain = _plain(value)
    if isinstance(plain, list | dict):
        return json.dumps(plain, ensure_ascii=False)
    return "" if plain is None else str(value) if isinstance(value, datetime.datetime) else plain


def _plain(value: Any) -> Any:
    """Convert a value to JSON's types: dates to ISO 8601, bytes to base64, decimals and anything else to text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def check_columns(path: Path, table: FileTable) -> None:
    """Raise ValueError, naming the column, if the rows of a table can't be written to `path`."""
    if FORMATS[path.suffix.lower()] == "parquet":
        _columns(path, table)


def _columns(path: Path, table: FileTable) -> Any:
    """The columns of a table in Arrow: with all their types if they come from a Parquet file."""
    arrow = optional_library(f"writing {str(path)!r}", "pyarrow")
    if table.path.suffix.lower() == ".parquet":
        return optional_library(f"writing {str(path)!r}", "pyarrow.parquet").read_table(table.path)
    columns: dict[str, Any] = {}
    for name in table.names:
        try:
            columns[name] = arrow.array([row.get(name) for row in table.rows])
        except (arrow.ArrowException, OverflowError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(
                f"the column {brief(name)} can't be written to a Parquet file, whose columns have one type each ({why}); "
                f"choose another form, such as {path.with_suffix('.jsonl').name}"
            ) from None
    return arrow.table(columns)


def _parquet(path: Path, table: FileTable, results: Mapping[str, Sequence[Any]]) -> bytes:
    parquet, made = optional_library(f"writing {str(path)!r}", "pyarrow.parquet"), _columns(path, table)
    for name, values in results.items():
        made = made.append_column(name, [values])
    file = io.BytesIO()
    parquet.write_table(made, file)
    return file.getvalue()
