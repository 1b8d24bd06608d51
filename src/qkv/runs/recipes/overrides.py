"""Command-line overrides `key=value`: parse them and apply them to a recipe's tree before validation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core import several, yamls
from ...core.spec import brief


def parse(text: str) -> tuple[str, Any]:
    """`training.max_steps=100` → ("training.max_steps", 100). The value is YAML: `[de, pl]`, `1e-3`, `{kind: cosine}`. A
    single mark such as `,` or `|` stands for itself: a shell removes the quotes that YAML would need."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key or not all(key.split(".")):
        exists = not equals and Path(text).exists()
        file = f" (a file of data is given first, in place of a recipe, or as data.path={text})" if exists else ""
        raise ValueError(f"{brief(text)} is not a setting; write key=value, for example training.max_steps=100{file}")
    if len(value) == 1 and value.strip(" ~") and not value.isalnum():
        return key, value
    return key, yamls.load(value, name=f"the value of {key}")


def as_setting(key: str, value: object) -> str:
    """`("a.b", "x")` → `a.b="x"`, which `parse` reads back to the same value."""
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def apply(tree: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """A copy of `tree` with all settings applied. The values are validated later, by the recipe.

    If a setting is given twice with different values, or again without a part of it, the last is used, with a warning.
    Raises ValueError for a setting that would drop an earlier one, as `model=gpt` drops `model.d_model=64` before it.
    """
    earlier: list[tuple[list[str], str]] = []
    values: dict[tuple[str, ...], Any] = {}
    for text in several.texts(settings, "settings"):
        key, value = parse(text)
        place = _place(key.split("."))
        told = set[tuple[str, ...]]()
        leaves = dict(_leaves(tuple(place), value))
        for leaf, given in leaves.items():
            before, values[leaf] = values.get(leaf, given), given
            if leaf[:-1] in told:  # the kind in a short form that was told
                continue
            if before != given or type(before) is not type(given):
                name = ".".join(leaf).removeprefix("model.replace.")
                said = f"{name} is given twice, as {brief(before)} and as {brief(given)}; the last value is used"
                warnings.warn(said, stacklevel=3)
                told.add(leaf)
        for other, dropped in earlier:
            if len(other) > len(place) and other[: len(place)] == place:
                raise ValueError(f"{key} replaces all of {key}, and with it {dropped}, given before; give {key} first")
        _tell_dropped(
            key, [leaf for leaf in values if leaf[: len(place)] == tuple(place) and leaf not in leaves], values
        )
        earlier.append((place, key))
        tree = _put(tree, place, key, value)
    return tree


def _tell_dropped(key: str, gone: list[tuple[str, ...]], values: dict[tuple[str, ...], Any]) -> None:
    """Remove the parts of a setting that is given again without them. Warn of removed parts other than its kind."""
    dropped = [f"{'.'.join(leaf)}={brief(values.pop(leaf))}" for leaf in gone]
    if named := [one for leaf, one in zip(gone, dropped, strict=True) if leaf[-1] != "kind" and ".".join(leaf) != key]:
        warnings.warn(
            f"{key} is given twice, the second time without {', '.join(named)}; the last value is used", stacklevel=4
        )


def without_replaced(settings: Iterable[str], given: Iterable[str]) -> list[str]:
    """The settings, without any that a given setting replaces: of the same key, or, as `data={…}` does, of a part of it."""
    places = [tuple(_place(parse(setting)[0].split("."))) for setting in given]

    def stays(setting: str) -> bool:
        place = tuple(_place(parse(setting)[0].split(".")))
        return not any(place[: len(other)] == other for other in places)

    return [setting for setting in settings if stays(setting)]


def warn_of_overruled(settings: Iterable[str], others: Mapping[str, Iterable[str]], by: str) -> None:
    """Warn of settings that are not used, in whole or in part, because one of several recipes sets them otherwise.

    others: by the name of a recipe, the settings that it applies after `settings`.
    by:     what these are, in words.
    """
    places = {
        name: [tuple(_place(other.partition("=")[0].strip().split("."))) for other in own]
        for name, own in others.items()
    }
    told: dict[tuple[str, ...], str] = {}
    for key, value in map(parse, several.texts(settings, "settings")):
        for leaf, given in _leaves(tuple(_place(key.split("."))), value):
            names = [name for name, own in places.items() if any(leaf[: len(place)] == place for place in own)]
            if names and given is not None and leaf[:-1] not in told:
                path = ".".join(leaf).removeprefix("model.replace.")
                where = "" if len(names) == len(places) else f" in {', '.join(names)}"
                told[leaf] = f"{path}={brief(given)} is not used{where}, because {by} sets it"
    for sentence in told.values():
        warnings.warn(sentence, stacklevel=3)


def _leaves(place: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The single values of a setting with their places; `schedule=cosine` is `schedule.kind=cosine`, too."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves((*place, str(name)), item)
        return
    yield place, value
    if isinstance(value, str):
        yield (*place, "kind"), value


def put(tree: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of `tree` with a value set at a dotted key."""
    return _put(tree, _place(key.split(".")), key, value)


def without(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """A copy of `tree` without the value at a path."""
    head, *rest = path
    if rest:
        return {**tree, head: without(tree[head], rest)}
    return {key: value for key, value in tree.items() if key != head}


def _place(path: list[str]) -> list[str]:
    """The path of a key in the tree. A key into the model's spec, such as `model.decoder.position`, stays dotted under
    `model.replace`."""
    if path[0] == "model" and len(path) > 2:
        inside = path[2:] if path[1] == "replace" else path[1:]
        return ["model", "replace", ".".join(inside)]
    return path


def _put(node: Any, path: list[str], key: str, value: Any) -> dict[str, Any]:
    if isinstance(node, str):  # the short form, `schedule: cosine`
        if key == "model.kind" and value != node:  # the name of a preset or a directory isn't a kind
            raise ValueError(
                f"model.kind={value} would replace model={node}; give one of them (another preset is model.preset=NAME)"
            )
        node = {"kind": node}
    if node is None:
        node = {}
    if not isinstance(node, dict):
        parent = ".".join(key.split(".")[: -len(path)])
        raise ValueError(f"{key} can't be set, because {parent} is {brief(node)} and has no keys; set {parent} itself")
    head, *rest = path
    return {**node, head: _put(node.get(head), rest, key, value) if rest else value}
