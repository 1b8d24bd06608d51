"""Results of a run as columns beside the input's columns: CSV, TSV, JSON, JSON Lines and Parquet, written whole."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....core.atomic import write_file
from ....core.json_files import rows_in
from ....core.optional_libraries import optional_library
from ....core.spec import brief
from ....data.files.records import FORMATS
from ....io.directories.layout import claim_output
from ...tasks.classes import Classified
from ...tasks.prediction import Prediction
from .read import FileTable, Row


def is_output(path: Path) -> bool:
    """Whether a name is that of a table that is written."""
    return path.suffix.lower() in FORMATS


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
    renamed = {name: _free(name, table.names) for name in added}
    names = [*table.names, *renamed.values()]
    rows = [
        {**row, **{renamed[name]: None if result is None else result.get(name) for name in added}}
        for row, result in zip(table.rows, results, strict=True)
    ]
    if form == "parquet":
        content = _parquet(path, table, names, rows)
    elif form == "jsonl":
        content = rows_in(path, rows).encode("utf-8", "backslashreplace")
    else:
        delimiter = "\t" if form == "tsv" else "," if table.delimiter == "\t" else table.delimiter
        content = _cells(names, rows, delimiter).encode("utf-8", "backslashreplace")
    write_file(path, content)
    taken = [(name, free) for name, free in renamed.items() if name != free]
    if not taken:
        return ()
    old, new = (" ".join(map(repr, names)) for names in zip(*taken, strict=True))
    return (f"the input has the columns {old} already; the new ones are {new}",)


def _free(name: str, taken: Sequence[str]) -> str:
    number = 2
    free = name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


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
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def _parquet(path: Path, table: FileTable, names: Sequence[str], rows: Sequence[Row]) -> bytes:
    arrow = optional_library(f"writing {str(path)!r}", "pyarrow")
    parquet = optional_library(f"writing {str(path)!r}", "pyarrow.parquet")
    made = arrow.table({name: arrow.array([row.get(name) for row in rows]) for name in names})
    if table.path.suffix.lower() == ".parquet":  # its columns keep their types
        for place, field in enumerate(parquet.read_schema(table.path)):
            made = made.set_column(place, field, made.column(field.name).cast(field.type))
    file = io.BytesIO()
    parquet.write_table(made, file)
    return file.getvalue()
