"""`Spec`, the base of every model part and setting: a frozen, validated value with a JSON form.

A model is a tree of specs. Every spec class belongs to a *role* (pattern, position, norm …) and has a `kind`, its name
in JSON. A role is an open registry: a class written anywhere joins it by being defined,

    class Diagonal(Pattern, kind="diagonal"): ...

and from then on `{"kind": "diagonal"}` is a valid pattern wherever a spec tree wants one.
"""

from __future__ import annotations

import difflib
import json
import os
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator

from .registry import LazyTable, import_installed

_PYDANTICS = frozenset(name for name in dir(BaseModel) if not name.startswith("__"))
SCHEMA = 1  # of the JSON form; raised when an older file needs translation


class Spec(BaseModel):
    """Base class of frozen values. They can be compared, hashed and printed; `to_json` saves them, and `replace` returns a
    changed copy."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, protected_namespaces=(), defer_build=True
    )

    kind: ClassVar[str] = ""
    kinds: ClassVar[LazyTable[type[Spec]]]  # the registry of the role this class belongs to
    role: ClassVar[str] = ""

    def __init_subclass__(cls, *, kind: str = "", role: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if role:
            cls.role, cls.kinds, cls.kind = role, LazyTable(), ""
        if kind:
            if not cls.role:
                cls.role, cls.kinds = kind, LazyTable()
            known = None if cls.kinds.is_later(kind, cls.__module__) else cls.kinds.get(kind)
            if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(f"{cls.role} kind {brief(kind)} is already {known.__module__}.{known.__qualname__}")
            cls.kind = kind
            cls.kinds[kind] = cls

    def __init__(self, /, **data: Any) -> None:
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            if (ours := _in_ours(data, type(self))).keys() == data.keys():
                raise ValueError(f"{type(self).__name__}: {explain(error, type(self))}") from None
            Spec.__init__(self, **ours)

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # nested values are not built through it

    def __hash__(self) -> int:
        return hash((type(self), *[_hashable(getattr(self, name)) for name in type(self).model_fields]))

    def __str__(self) -> str:
        return repr(self)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """What `repr` shows: the fields that differ from their defaults, as in `Attention(n_heads=12)`."""
        yield from self.changed_fields().items()

    def __dir__(self) -> list[str]:
        """The names of the class and its fields, without the many that pydantic adds."""
        own = {"kind", "replace", "diff", "walk", "to_dict", "to_json", "from_dict", "from_json", "changed_fields"}
        return sorted(own.union(super().__dir__()) - _PYDANTICS)

    def changed_fields(self) -> dict[str, Any]:
        """The fields that differ from their defaults, and fields without a default."""
        fields = type(self).model_fields
        values = {name: (getattr(self, name), field) for name, field in fields.items()}
        return {
            name: value
            for name, (value, field) in values.items()
            if field.is_required() or value != field.get_default(call_default_factory=True)
        }

    # -- JSON ---------------------------------------------------------------------------------------------------

    @model_validator(mode="wrap")
    @classmethod
    def _dispatch(cls, value: Any, handler: Any) -> Any:
        """Turn `{"kind": ..., ...}`, or a bare kind, into the class that registered it."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping):
            _check_numbers(value)
        if isinstance(value, Mapping) and cls.role:
            value = dict(value)
            kind = value.pop("kind", cls.kind)
            if not isinstance(kind, str):
                raise ValueError(
                    f"{with_article(cls.role)}'s kind is a name, such as {brief(next(iter(cls.kinds), 'none'))}, "
                    f"not {brief(kind)}"
                )
            if not cls.kind and not kind:
                raise ValueError(f"{with_article(cls.role)} needs a kind: {', '.join(cls.kinds)}")
            if kind != cls.kind:
                target = cls.kinds.get(kind)
                if target is None:
                    import_installed()
                    target = cls.kinds.get(kind)
                if target is None or not issubclass(target, cls):
                    raise ValueError(f"there is no {cls.role} {brief(kind)}; {nearest(kind, cls.kinds)}")
                return target.model_validate(value)
        return handler(value)

    @model_serializer(mode="plain")
    def _serialize(self) -> dict[str, Any]:
        fields = {name: self._to_json_field(name) for name in type(self).model_fields}
        return {"kind": self.kind, **fields} if self.kind else fields

    def _to_json_field(self, name: str) -> Any:
        """A field's JSON form; a class with a shorter form for one of its fields overrides this."""
        return getattr(self, name)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and scalars: what `to_json` writes."""
        return json.loads(self.model_dump_json())

    def to_json(self, indent: int | None = 2) -> str:
        """The canonical JSON form with its schema version; `from_json` reads it back to an equal value."""
        return json.dumps({"schema": SCHEMA, **self.to_dict()}, indent=indent)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Validate plain data. Raises ValueError with one sentence that names the field."""
        if not isinstance(data, Mapping):
            raise ValueError(f"{with_article(cls.role or 'spec')} is read from a dictionary, not {brief(data)}")
        data = dict(data)
        schema = data.pop("schema", SCHEMA)
        if schema != SCHEMA:
            raise ValueError(f"schema {brief(schema)} is not known here; this version of qkv reads schema {SCHEMA}")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise ValueError(explain(error, cls)) from None

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("not valid JSON: it is nested too deep") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"not valid JSON: {error}") from None
        if not isinstance(data, dict):
            raise ValueError(f"{with_article(cls.role or 'spec')} is a JSON object, not {type(data).__name__}")
        return cls.from_dict(data)

    # -- the tree -----------------------------------------------------------------------------------------------

    def walk(self, path: str = "") -> Iterator[tuple[str, Spec]]:
        """Every spec in the tree with its dotted path, this one first."""
        yield path, self
        for name in type(self).model_fields:
            value = getattr(self, name)
            here = f"{path}.{name}" if path else name
            if isinstance(value, Spec):
                yield from value.walk(here)
            elif isinstance(value, tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Spec):
                        yield from item.walk(f"{here}.{i}")

    def replace(self, changes: Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """A copy with values changed at dotted paths; `*` stands for every item of a list, and for every part of a spec that
        has the rest of the path: `"*.blocks.*.attention.n_kv_heads"` is of encoder and decoder both.

        `spec.replace({"decoder.position": ALiBi(), "decoder.blocks.*.attention.n_kv_heads": 4})`. All changes are made
        before the result is validated. Raises ValueError that says what exists if a path leaves the tree.
        """
        if changes is not None and not isinstance(changes, Mapping):
            raise ValueError(f"changes are a dictionary of values by path, not {brief(changes)}")
        split = {tuple(str(path).split(".")): value for path, value in {**(changes or {}), **fields}.items()}
        try:
            return _replaced(self, split, "")
        except ValidationError as error:
            raise ValueError(explain(error, type(self))) from None

    def diff(self, other: Spec) -> dict[str, tuple[Any, Any]]:
        """The dotted paths at which two specs differ, each with both values."""
        if not isinstance(other, Spec):
            raise ValueError(f"a spec differs from another spec, and this is {brief(other)}")
        mine, theirs = dict(_leaves(self.to_dict())), dict(_leaves(other.to_dict()))
        paths = list(dict.fromkeys([*mine, *theirs]))
        return {p: (mine.get(p), theirs.get(p)) for p in paths if mine.get(p) != theirs.get(p)}


def _hashable(value: Any) -> Any:
    """A field's value as one that can be hashed; dictionaries and lists can't."""
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(item)) for key, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _replaced(node: Any, changes: dict[tuple[str, ...], Any], where: str) -> Any:
    if () in changes:
        node = changes[()]
        changes = {path: value for path, value in changes.items() if path}
        if not changes:
            return node
    if isinstance(node, Spec):
        names, items = list(type(node).model_fields), {n: getattr(node, n) for n in type(node).model_fields}
    elif isinstance(node, tuple | list):
        names, items = [str(i) for i in range(len(node))], {str(i): v for i, v in enumerate(node)}
    elif isinstance(node, Mapping):  # a part that another change has just put there, not validated yet
        names, items = list(map(str, node)), {str(name): value for name, value in node.items()}
    else:
        path = ".".join(next(iter(changes)))
        raise ValueError(
            f"there is nothing below {brief(where)} (it is {brief(node)}), so {brief(path)} can't be set there"
        )
    grouped: dict[str, dict[tuple[str, ...], Any]] = {}
    for (head, *rest), value in changes.items():
        if head == "*":
            heads = [n for n in names if _has(items[n], rest)] if isinstance(node, Spec) else names
            if not heads:
                part = brief(where) if where else f"a {type(node).__name__}"
                sought = brief(".".join(rest)) if rest else "a path, which '*' has to be followed by"
                raise ValueError(f"no part of {part} has {sought}; it has: {', '.join(names)}")
        elif head in items or (isinstance(node, Mapping) and not rest):
            heads = [head]
        elif isinstance(node, Spec) and (taken := next(iter(_in_ours({head: None}, type(node))))) != head:
            heads = [taken]
        else:
            place = brief(where) if where else f"a {type(node).__name__}"
            raise ValueError(f"{place} has no {brief(head)}; {_advice(head, names)}")
        for name in heads:
            grouped.setdefault(name, {})[tuple(rest)] = value
    for name, below in grouped.items():
        items[name] = _replaced(items.get(name), below, f"{where}.{name}" if where else name)
    if isinstance(node, Spec):
        return type(node).model_validate(items)
    return items if isinstance(node, Mapping) else tuple(items.values())


def _has(node: Any, path: list[str]) -> bool:
    """Whether a path leads to something in a part of a tree. A part itself is none, so `*` alone changes nothing."""
    if not path:
        return False
    head, *rest = path
    if isinstance(node, Spec):
        below = [getattr(node, name) for name in type(node).model_fields if head in (name, "*")]
    elif isinstance(node, tuple | list):
        below = [item for i, item in enumerate(node) if head in (str(i), "*")]
    else:
        return False
    return any(not rest or _has(item, rest) for item in below)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        spelled = [item["block"] for item in value for _ in range(item["repeat"])] if _is_runs(value) else value
        for i, item in enumerate(spelled):
            yield from _leaves(item, f"{path}.{i}")
    else:
        yield path, value


def _is_runs(value: list[Any]) -> bool:
    """A list written in runs of equal items, `{"repeat": n, "block": …}`."""
    return all(isinstance(item, dict) and set(item) == {"repeat", "block"} for item in value)


@dataclass(frozen=True)
class Cost:
    """What a part costs: parameters, FLOPs of one forward pass (a multiply-add is two), bytes written for backward.

    `idle` are the parameters that a token has no use for, the experts which its router does not pick.
    """

    parameters: int = 0
    flops: int = 0
    bytes: int = 0
    idle: int = 0

    @property
    def active(self) -> int:
        """The parameters that each token uses."""
        return self.parameters - self.idle

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.parameters + other.parameters,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.idle + other.idle,
        )

    def __mul__(self, count: int) -> Cost:
        return Cost(self.parameters * count, self.flops * count, self.bytes * count, self.idle * count)

    def __radd__(self, other: int) -> Cost:  # so that sum() works
        return self if other == 0 else NotImplemented


def _check_numbers(values: Mapping[str, Any]) -> None:
    """Raise ValueError for an integer that no tensor's size and no register holds."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError(f"{name} has to be less than 2^63 in size, not a number of {value.bit_length()} bits")


CLOSE = 0.6  # of 1, how alike a name has to be to be what was meant


def nearest(given: str, known: Iterable[str], unlisted: Iterable[str] = ()) -> str:
    """Half a sentence that helps: the nearest known names first, then what else there is, except for names that are
    `unlisted`."""
    names = list(dict.fromkeys(map(str, known)))
    candidates = list(dict.fromkeys([*names, *unlisted]))
    close = difflib.get_close_matches(str(given), candidates, n=3, cutoff=CLOSE)
    rest = [name for name in names if name not in close]
    listed = ", ".join(rest[:24]) + (" …" if len(rest) > 24 else "")
    if close:
        return f"did you mean {_one_of(close)}?" + (f" (also there: {listed})" if rest else "")
    return f"there is: {listed}" if rest else "there is nothing"


def _in_ours(fields: Mapping[str, Any], cls: type[Spec]) -> dict[str, Any]:
    """Return the fields by qkv's names. Raises ValueError if a field is given by two names."""
    from .synonyms import fields_in_ours

    return fields_in_ours(fields, cls)


def _advice(given: str, known: Iterable[str]) -> str:
    """What another library's name is here, or else the nearest known names."""
    from .synonyms import elsewhere

    return elsewhere(given, known) or nearest(given, known)


def meant(given: object, known: Iterable[str], meanings: Mapping[str, str]) -> str:
    """`nearest`, after what `meanings` says: by name, the words of the field for it."""
    word = str(given).lower().replace("_", "-").replace(" ", "-")
    found = [name for name, words in meanings.items() if word in words.split()]
    return f"did you mean {_one_of(found)}?" if found else nearest(str(given), known)


def _one_of(names: Sequence[str]) -> str:
    """`'a'`, `'a' or 'b'`, or `'a', 'b' or 'c'`."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist, _BRIEF.maxtuple = 3, 4, 8, 8
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 80
_PATH = reprlib.Repr()
_PATH.maxstring = 400
_LONGEST = 500  # characters of what is said of one mistake


def brief(value: object) -> str:
    """`repr` in one line, short whatever the value is; a path is quoted as text, with more of it, because its end says
    most."""
    if isinstance(value, os.PathLike):
        return _PATH.repr(os.fspath(value))
    return " ".join(_BRIEF.repr(value).split()) if hasattr(value, "shape") else _BRIEF.repr(value)


def short(name: str) -> str:
    """A name without quotes; of a long one, both ends."""
    return name if len(name) <= _BRIEF.maxstring else brief(name)[1:-1]


def with_article(noun: str) -> str:
    """A noun with its indefinite article: `a norm`, `an attention`."""
    return f"{'an' if noun[:1] in 'aeiou' else 'a'} {noun}"


def counted(n: int, noun: str) -> str:
    """A number with thousands separators and its noun, which gets an s unless the number is 1: `1,200 examples`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def explain(error: ValidationError, cls: type[BaseModel] | None = None) -> str:
    """A validation error as one sentence: where, what was given, what is allowed."""
    said = []
    for item in error.errors(include_url=False)[:3]:
        where = ".".join(short(str(part)) for part in item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            fields = cls.model_fields if cls is not None and len(item["loc"]) == 1 else {}
            message = f"no such field; {_advice(str(item['loc'][-1]), fields)}" if fields else "no such field"
        elif item["type"] not in ("value_error", "missing"):
            message = f"{message[0].lower()}{message[1:]}, not {brief(item['input'])}"
        message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 100]} … {message[-100:]}"
        said.append(f"{where}: {message}" if where else message)
    return "; ".join(said)
