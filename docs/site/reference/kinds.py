"""The schema of specs: every kind of every role, with its fields, types and defaults, as recipes and JSON hold them."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from .docstrings import entries, escaped, first, markdown, table


@cache
def pages() -> dict[str, str]:
    """A page for each role, and one that lists them."""
    return {"kinds/index.md": _index(), **{f"kinds/{role}.md": _role(role) for role in roles()}}


@cache
def roles() -> tuple[str, ...]:
    """The roles of specs that have kinds, by name."""
    return tuple(sorted(_bases()))


@cache
def _bases() -> dict[str, Any]:
    """The class that holds the registry of each role."""
    from qkv.core.spec import Spec

    found: dict[str, Any] = {}
    for cls in _below(Spec):
        if cls.role and cls.role not in found and cls.__module__.startswith("qkv."):
            found[cls.role] = cls
    return found


def _below(cls: Any) -> Iterator[Any]:
    for one in cls.__subclasses__():
        yield one
        yield from _below(one)


def kinds(role: str) -> dict[str, Any]:
    """The kinds of a role that come with qkv."""
    return {kind: cls for kind, cls in _bases()[role].kinds.items() if cls.__module__.startswith("qkv.")}


def _index() -> str:
    rows = [(f"[{role}]({role}.md)", ", ".join(f"`{kind}`" for kind in kinds(role))) for role in roles()]
    return (
        "# Kinds\n\n"
        "A spec is a value with a `kind`, which belongs to a role; a kind alone, such as `rotary`, has its defaults.\n"
        "`qkv list` prints kinds in a terminal, and [Extending](../../extending.md) shows how to add one.\n\n"
        + table(("role", "kinds"), rows)
        + "\nA recipe as a whole has these keys:\n\n"
        + _fields(_recipe())
    )


def _recipe() -> Any:
    from qkv.runs.recipes.recipe import Recipe

    return Recipe


def _role(role: str) -> str:
    parts = [f"# {role}", markdown(_own_doc(_bases()[role]))]
    for kind, cls in kinds(role).items():
        where = f"`qkv.{cls.__module__.removeprefix('qkv.')}.{cls.__name__}`"
        parts += [f"## {kind} {{ #{kind} }}", where, markdown(_own_doc(cls)), _fields(cls)]
        parts += _parts(cls)
    return "\n\n".join(part for part in parts if part) + "\n"


def _own_doc(cls: Any) -> str:
    """The docstring of a class, else of the nearest base that has one."""
    return next((base.__doc__ for base in cls.__mro__ if vars(base).get("__doc__")), "")


def _fields(cls: Any) -> str:
    said = {name: text for base in reversed(cls.__mro__) for name, text in entries(vars(base).get("__doc__")).items()}
    rows = [
        (f"`{name}`", shown(field.annotation), _default(field), said.get(name, ""))
        for name, field in cls.model_fields.items()
    ]
    if not any(row[3] for row in rows):
        return table(("field", "type", "default"), [row[:3] for row in rows])
    return table(("field", "type", "default", ""), rows)


def _parts(cls: Any) -> list[str]:
    """The fields of specs without a role that a kind holds, such as an attention's `low_rank`."""
    texts = []
    for name, field in cls.model_fields.items():
        for part in _specs(field.annotation):
            if not part.role:
                texts.append(f"The fields of `{name}`: {first(part.__doc__)}\n\n{_fields(part)}")
    return texts


def _specs(annotation: Any) -> Iterator[Any]:
    from qkv.core.spec import Spec

    if inspect.isclass(annotation) and not isinstance(annotation, types.GenericAlias) and issubclass(annotation, Spec):
        yield annotation
    for part in get_args(annotation):
        if not isinstance(part, str):
            yield from _specs(part)


def shown(annotation: Any) -> str:
    """A type in words that Markdown shows, with a link for a role."""
    from qkv.core.spec import Spec

    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return shown(arguments[0])
    if origin is Literal:
        return " or ".join(
            f"`{json.dumps(value)}`" if not isinstance(value, str) else f"`{value}`" for value in arguments
        )
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(shown, arguments)))
    if annotation is type(None):
        return "null"
    if annotation in (int, float, str, bool):
        return {int: "whole number", float: "number", str: "text", bool: "true or false"}[annotation]
    if origin is dict:
        return f"{shown(arguments[1])} by {shown(arguments[0])}"
    if origin in (tuple, list):
        inner = dict.fromkeys(shown(part) for part in arguments if part is not Ellipsis)
        return f"list of {', '.join(inner)}"
    if inspect.isclass(annotation) and issubclass(annotation, Spec):
        role = annotation.role
        return f"[{role}]({_link(role)})" if role in _bases() else escaped(annotation.__name__)
    return "any value" if annotation is Any else escaped(getattr(annotation, "__name__", str(annotation)))


def _link(role: str) -> str:
    return f"{role}.md"


def _default(field: Any) -> str:
    from qkv.core.spec import Spec

    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Spec):
        changed = value.changed_fields()
        return (
            f"`{value.kind}`" if value.kind and not changed else f"`{json.dumps(value.to_dict(), ensure_ascii=False)}`"
        )
    if isinstance(value, tuple):
        value = [one.to_dict() if isinstance(one, Spec) else one for one in value]
    return f"`{json.dumps(value, ensure_ascii=False, default=str)}`"
