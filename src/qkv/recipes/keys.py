"""Error messages for unknown and missing keys of a recipe, with the nearest valid keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError

from ..core.spec import Spec, explain, nearest
from .synonyms import elsewhere


def explained(error: ValidationError, data: Any, spec: type[Spec]) -> str:
    """One sentence a mistake: an unknown key with the nearest ones, a missing one with how to give it."""
    said = []
    for item in error.errors(include_url=False)[:3]:
        path = [str(part) for part in item["loc"]]
        where = ".".join(path)
        if item["type"] == "extra_forbidden":
            said.append(_unknown(path, data, spec))
        elif item["type"] == "missing":
            said.append(f"{where} is missing; give it as {where}=...")
    return "; ".join(said) or explain(error)


def _unknown(path: list[str], data: Any, whole: type[Spec]) -> str:
    """That a key is none, and which there are; of a key that other kinds have, which these are."""
    where, spec = ".".join(path), spec_at(data, path[:-1], whole)
    if (here := elsewhere(path[-1])) is not None:
        return f"there is no {where!r}; {here}"
    others = sorted(kind for kind, other in spec.kinds.items() if path[-1] in other.model_fields) if spec.role else []
    if not others and (places := list(_places(data, path[-1], whole))):
        return f"there is no {where!r}; did you mean {' or '.join(map(repr, places))}?"
    if not others:
        return f"there is no {where!r}; {nearest(where, keys(data, path[:-1], whole))}"
    place = ".".join(path[:-1])
    return f"{where!r} is not of the kind {spec.kind!r}; give {place}.kind=… of those that have it: {', '.join(others)}"


def keys(data: Any, path: list[str], whole: type[Spec]) -> Iterator[str]:
    """The keys that a recipe may have at a path, by the specs that stand on the way."""
    yield from (".".join([*path, name]) for name in spec_at(data, path, whole).model_fields)


def _places(data: Any, name: str, whole: type[Spec]) -> Iterator[str]:
    """Where else in a recipe there is a key of this name."""
    for part in whole.model_fields:
        yield from (key for key in keys(data, [part], whole) if key.rpartition(".")[2] == name)
        for below in spec_at(data, [part], whole).model_fields:
            if spec_at(data, [part, below], whole) is not spec_at(data, [part], whole):
                yield from (key for key in keys(data, [part, below], whole) if key.rpartition(".")[2] == name)


def spec_at(data: Any, path: list[str], spec: type[Spec]) -> type[Spec]:
    """The spec that stands at a path of a recipe's tree."""
    for part in path:
        data = data.get(part) if isinstance(data, dict) else None
        spec = _spec_of(spec.model_fields[part].annotation) if part in spec.model_fields else spec
        kind = data.get("kind") if isinstance(data, dict) else data
        spec = spec.kinds.get(kind, spec) if spec.role and isinstance(kind, str) else spec
    return spec


def _spec_of(annotation: Any) -> type[Spec]:
    """The spec class in a field's annotation, `Average` in `Annotated[Average | None, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return annotation
    return next((found for part in get_args(annotation) if (found := _spec_of(part)) is not Spec), Spec)
