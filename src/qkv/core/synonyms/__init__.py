"""Options of other libraries. qkv accepts names that mean the same as one of its options, and refuses others with a hint."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .keywords import ARGUMENTS, IN_SPECS
from .table import CLAUSES, DIFFERENT, DIFFERENT_OPTIONS, OPTIONS, SAME, SYNONYMS

Value = TypeVar("Value")


def plain(name: str) -> str:
    """The name in the form of the tables."""
    return name.strip().lstrip("-").lower().replace("-", "_")


def same(name: str, within: str | Sequence[str] = "", known: Container[str] | None = None) -> str | None:
    """Return the setting that means exactly the same as another library's name, in the same unit; None unless there is one.

    within: the part of a recipe in which the name was given, such as `generation`, or a list of settings and parts. By
            default, any.
    known:  the names that are valid there. By default, all.
    """
    parts = (within,) if isinstance(within, str) else within
    places = [
        place for place in SAME.get(name, ()) if not within or any(f"{place}.".startswith(f"{part}.") for part in parts)
    ]
    places = [place for place in places if known is None or _last(place) in known]
    return places[0] if len(places) == 1 else None


def in_ours(given: Mapping[str, Value], known: Container[str], within: str | Sequence[str]) -> dict[str, Value]:
    """Return options by qkv's names. Accepts names of other libraries that mean the same.

    Raises ValueError if an option is given by two names.
    """
    places = {name: None if name in known else same(name, within, known) for name in given}
    return _renamed(given, {name: _last(place) for name, place in places.items() if place is not None})


def _renamed(given: Mapping[str, Value], ours: Mapping[str, str]) -> dict[str, Value]:
    """Return options by the names in `ours`. Raises ValueError if an option is given by two names."""
    names: dict[str, str] = {}
    for name in given:
        if (other := names.setdefault(ours.get(name, name), name)) != name:
            raise ValueError(both(other, name, ours.get(name, name)))
    return {name: given[theirs] for name, theirs in names.items()}


def fields_in_ours(given: Mapping[str, Any], cls: type) -> dict[str, Any]:
    """Return the fields of a spec by qkv's names. Accepts names of other libraries that mean the same for the spec's class
    or role: `Attention(num_attention_heads=8)` for `Attention(n_heads=8)`.

    Raises ValueError if a field is given by two names.
    """
    named = [*(base.__name__ for base in cls.__mro__), getattr(cls, "role", "")]
    within = next((IN_SPECS[name] for name in named if name in IN_SPECS), ())
    return in_ours(given, cls.model_fields, within) if within else dict(given)  # type: ignore[attr-defined]


def arguments_in_ours(function: str, known: Sequence[str], count: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keyword arguments of a function to qkv's names. If the function has a parameter `changes`, arguments that
    name settings are moved into it.

    known: the names of the function's parameters. The first `count` of them are given by position.

    Raises ValueError if an argument is given by two names.
    """
    theirs = {name: ours for name, ours in ARGUMENTS.get(function, {}).items() if name not in known}
    for name in given:
        if (ours := theirs.get(name)) is not None and ours in known[:count]:
            raise ValueError(both(ours, name, ours))
    renamed = _renamed(given, theirs)
    if "changes" not in known:
        return renamed
    settings = {name: place for name in renamed if name not in known and (place := same(name)) is not None}
    moved = _renamed({name: renamed.pop(name) for name in settings}, settings)
    changes = renamed.get("changes") or {}
    if moved and isinstance(changes, Mapping):  # `train` refuses other changes
        if (twice := next((place for place in moved if place in changes), None)) is not None:
            raise ValueError(both(next(name for name, place in settings.items() if place == twice), twice, twice))
        renamed["changes"] = {**changes, **moved}
    return renamed


def option_for(name: str, known: Container[str]) -> str | None:
    """Return the option of a command that means exactly the same as another library's option; None if there is none.

    known: the options of the command, which is one that trains or one that generates.
    """
    word, trains = plain(name), "--resume" in known
    if trains and OPTIONS.get(word) in known:
        return OPTIONS[word]
    place = same(word, "" if trains else "generation") if trains or "--max-new-tokens" in known else None
    option = None if place is None else f"--{_last(place).replace('_', '-')}"
    return option if option in known else None


def both(name: str, other: str, ours: str) -> str:
    """Return the message for an option that is given by two names."""
    if ours in (name, other):
        return f"{(other if name == ours else name)!r} is {ours} here, and both are given; give one of them"
    return f"{name!r} and {other!r} are both {ours} here; give one of them"


def elsewhere(name: str, here: Iterable[str] = (), within: str = "", own: bool = True) -> str | None:
    """Return a clause that names qkv's setting for a setting of another library, or None if the name is unknown.

    here:   the names that are known where the name was given; a place whose last part is among them is named by it.
    within: the part of a recipe in which the name was given, such as `generation`.
    own:    whether names that qkv has too, in another place, count.
    """
    known, mine = plain(name), set(here)
    places = [place for place in SYNONYMS.get(known, ()) if own or _last(place) != known]
    close = [place for place in places if _last(place) in mine or (within and place.startswith(f"{within}."))]
    option, reason = DIFFERENT_OPTIONS.get(known, (OPTIONS.get(known, ""), ""))
    if not close and option:
        option = option.lstrip("-")
        remark = f" ({reason})" if reason else ""
        return (f"it is {option} here" if option in mine else f"it is the option --{option} of `qkv train`") + remark
    if not close and known in CLAUSES:
        return CLAUSES[known]
    if not places:
        return None
    named = [_last(place) if _last(place) in mine else place for place in close or places]
    told = next((why for place in close or places if (why := DIFFERENT.get((place, known)))), None)
    return f"it is {' or '.join(dict.fromkeys(named))} here" + (f" ({told})" if told else "")


def _last(place: str) -> str:
    return place.rpartition(".")[2]
