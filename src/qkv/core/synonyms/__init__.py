"""What an option of another library is in qkv, for messages about unknown names."""

from __future__ import annotations

from collections.abc import Iterable

from .table import CLAUSES, OPTIONS, REMARKS, SYNONYMS


def plain(name: str) -> str:
    """The name in the form of the tables."""
    return name.strip().lstrip("-").lower().replace("-", "_")


def elsewhere(name: str, here: Iterable[str] = (), within: str = "", own: bool = True) -> str | None:
    """Return a clause that names qkv's setting for a setting of another library, or None if the name is unknown.

    here:   the names that are known where the name was given; a place whose last part is among them is named by it.
    within: the part of a recipe in which the name was given, such as `generation`.
    own:    whether names that qkv has too, in another place, count.
    """
    known, mine = plain(name), set(here)
    places = [place for place in SYNONYMS.get(known, ()) if own or _last(place) != known]
    close = [place for place in places if _last(place) in mine or (within and place.startswith(f"{within}."))]
    option = OPTIONS.get(known, "").lstrip("-")
    if not close and option:
        return f"it is {option} here" if option in mine else f"it is the option --{option} of `qkv train`"
    if not close and known in CLAUSES:
        return CLAUSES[known]
    if not places:
        return None
    named = [_last(place) if _last(place) in mine else place for place in close or places]
    remark = REMARKS.get(known, REMARKS.get((close or places)[0]))
    return f"it is {' or '.join(dict.fromkeys(named))} here" + (f" ({remark})" if remark else "")


def _last(place: str) -> str:
    return place.rpartition(".")[2]
