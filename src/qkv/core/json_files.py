"""Read text and JSON files that others wrote: of bounded size, checked by a schema, with errors that name file and place.

Write strict JSON: NaN and the infinities, which the format lacks, become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError

from .spec import brief

Content = TypeVar("Content")


def read_text(path: Path, limit: int = 16 << 20) -> str:
    """Read a text file of bounded size. Raises ValueError naming the file if it is too large or not UTF-8."""
    if path.stat().st_size > limit:
        raise ValueError(f"{path} is larger than {limit >> 20} MiB, which no file of its kind is")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from None


def read_json(path: Path) -> Any:
    """Read a JSON file of bounded size. Raises ValueError naming the file if it is too large or not valid."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


# -- schemas -----------------------------------------------------------------------------------------------------------


def _id(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("should be a whole number or a text")
    return value


Id = Annotated[Any, AfterValidator(_id)]
"""What names an entry of a file: a whole number or a text."""


def checked(schema: TypeAdapter[Content], value: object, where: str) -> Content:
    """A JSON value that has a schema, without what the schema doesn't name. Raises ValueError of one sentence that names the
    first place, below `where`, at which it has not."""
    try:
        return schema.validate_python(value, strict=True)
    except ValidationError as error:
        raise ValueError(f"{where}: {_first_fault(error)}") from None
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None


_KINDS = {
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type"), "an object"),
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number"),
    "string_type": "a text",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
}


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    *above, last = map(str, first["loc"] or ("it",))
    place, message = ".".join((*above, last)), first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "missing":
        return f"{'.'.join(above) or 'it'} has no {last!r}"
    if first["type"] in ("too_short", "too_long"):
        return f"{place} {message.partition(' ')[2].replace(' after validation', '')}"
    kind = _KINDS.get(first["type"])
    return f"{place} {f'should be {kind}' if kind else message}, not {brief(first['input'])}"


def dumps(value: object, indent: int | None = None) -> str:
    """Serialize a value, with characters outside ASCII unescaped."""
    return json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def finite(value: object) -> Any:
    """A copy with None in place of every number that is not finite, at any depth."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def rows_in(path: Path, rows: Iterable[Any]) -> str:
    """Rows as the text of a file: one list in a `.json`, else JSON Lines."""
    if path.suffix.lower() == ".json":
        return "[\n" + ",\n".join(map(dumps, rows)) + "\n]\n"
    return "".join(f"{dumps(row)}\n" for row in rows)
