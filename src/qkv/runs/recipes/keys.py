"""Error messages for unknown and missing keys of a recipe, with the nearest valid keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError

from ...core.spec import Spec, brief, explain, nearest


def explained(error: ValidationError, data: object, spec: type[Spec]) -> str:
    """A sentence for each mistake: unknown keys with the nearest valid ones, missing keys with how to give them."""
    messages = []
    for item in error.errors(include_url=False)[:3]:
        path = [str(part) for part in item["loc"]]
        where = ".".join(path)
        if item["type"] == "extra_forbidden":
            messages.append(_unknown(path, data, spec))
        elif item["type"] == "missing":
            messages.append(f"{where} is missing; give it as {where}=...")
    return "; ".join(messages) or explain(error)


def _unknown(path: list[str], data: Any, root: type[Spec]) -> str:
    """A message on an unknown key: the key to use instead, the nearest valid keys, or the kinds that have this key."""
    where, spec = ".".join(path), spec_at(data, path[:-1], root)
    from ...core.synonyms import elsewhere

    if (here := elsewhere(path[-1], within=path[0] if len(path) > 1 else "", own=False)) is not None:
        return f"there is no {brief(where)}; {here}"
    others = sorted(kind for kind, other in spec.kinds.items() if path[-1] in other.model_fields) if spec.role else []
    if not others and (matches := list(_of_name(data, path[-1], root))):
        return f"there is no {brief(where)}; did you mean {' or '.join(map(repr, matches))}?"
    if not others:
        return f"there is no {brief(where)}; {nearest(where, keys(data, path[:-1], root))}"
    parent = ".".join(path[:-1])
    return (
        f"{parent} of the kind {spec.kind!r} has no {brief(path[-1])}; leave {brief(where)} out, or change {parent}.kind to "
        f"{_alternatives(others)}"
    )


def _alternatives(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def keys(data: object, path: list[str], root: type[Spec]) -> Iterator[str]:
    """The valid keys at a path of a recipe's tree `data`; `root` is the spec of the whole tree."""
    yield from (".".join([*path, name]) for name in spec_at(data, path, root).model_fields)


def _of_name(data: Any, name: str, root: type[Spec]) -> Iterator[str]:
    """The valid keys elsewhere in a recipe that have this name."""
    for part in root.model_fields:
        yield from (key for key in keys(data, [part], root) if key.rpartition(".")[2] == name)
        for below in spec_at(data, [part], root).model_fields:
            if spec_at(data, [part, below], root) is not spec_at(data, [part], root):
                yield from (key for key in keys(data, [part, below], root) if key.rpartition(".")[2] == name)


def spec_at(data: object, path: list[str], spec: type[Spec]) -> type[Spec]:
    """The spec class at a path of a recipe's tree; `spec` is that of the whole tree."""
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
    return next((spec for part in get_args(annotation) if (spec := _spec_of(part)) is not Spec), Spec)
