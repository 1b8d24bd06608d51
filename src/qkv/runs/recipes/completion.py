"""Completion of `KEY=VALUE` settings in a shell: the keys of a recipe, and the values of keys with few.

A shell waits for each answer, so this module doesn't import the parts that it names: their fields are in
`completion.json`. After a change to fields or kinds, write it again with `python -m qkv.runs.recipes.completion`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ...core import yamls
from ...core.atomic import write_file
from . import overrides

TABLES = "completion.json"
RECIPE = "recipe.yaml"  # as in `directories.layout`, whose import takes long
PART, KIND, EACH = "part", "kind", "each"

Field = list[str] | dict[str, Any]
"""The values of a field, none if they can't be listed; or its part, with its default kind, and whether it is a list."""
Fields = dict[str, Field]


def complete(recipe: str, settings: Iterable[str], incomplete: str) -> list[str]:
    """The keys, or the values after `=`, with which a setting may continue.

    recipe:   the recipe, YAML file, run directory or preset that the settings change.
    settings: the settings so far; `data.kind=images` decides which keys `data` has.
    """
    tables = json.loads(files("qkv.runs.recipes").joinpath(TABLES).read_text(encoding="utf-8"))
    key, equals, value = incomplete.partition("=")
    *path, last = key.split(".")
    fields = _fields_at(path, _tree(recipe, settings), recipe, tables)
    if equals:
        return [f"{key}={choice}" for choice in _values(fields.get(last, []), tables) if choice.startswith(value)]
    before = key[: len(key) - len(last)]
    matches = ((name, field) for name, field in fields.items() if name.startswith(last))
    return [f"{before}{name}{end}" for name, field in matches for end in _ends(field, tables)]


def _ends(field: Field, tables: Mapping[str, Any]) -> str:
    """What may follow a key: `=` and a value, `.` and a key of its part, or either."""
    if isinstance(field, list):
        return "="
    return "=." if len(_values(field, tables)) > 1 and not field.get(EACH) else "."


def _tree(recipe: str, settings: Iterable[str]) -> dict[str, Any]:
    """The tree of a recipe with settings, as far as they can be read."""
    packaged, path = files("qkv.runs.recipes").joinpath(f"{recipe}.yaml"), Path(recipe)
    file = packaged if packaged.is_file() else path / RECIPE if path.is_dir() else path
    try:
        tree = yamls.load(file.read_text(encoding="utf-8"), str(file))
    except (OSError, ValueError):
        tree = {}
    tree = tree if isinstance(tree, dict) else {}
    for setting in settings:
        try:
            tree = overrides.put(tree, *overrides.parse(setting))
        except ValueError:
            continue
    return tree


def _fields_at(path: Sequence[str], tree: Any, recipe: str, tables: Mapping[str, Any]) -> Fields:
    """The fields below a path of a recipe's tree; at the path of a list, `*` for all its elements."""
    presets = tables["presets"]
    fields: Fields = tables["parts"]["Recipe"][""]
    if recipe in presets and not tree:
        fields = tables["sizes"][presets[recipe]]
    for name in path:
        node = tree.get(name) if isinstance(tree, dict) else None
        field = fields.get(name, [])
        if name not in fields and "*" in fields:
            field = fields["*"]
        if not isinstance(field, dict):
            return {}
        kind = node.get("kind") if isinstance(node, dict) else node
        if field[PART] == "model":
            preset = node.get("preset") if isinstance(node, dict) else node
            fields = tables["parts"]["model"][""] | tables["sizes"].get(presets.get(preset), {})
        elif field.get(EACH):
            fields = {"*": {**field, EACH: False}}
        else:
            kinds = tables["parts"][field[PART]]
            usual = field.get(
                KIND, field[PART] if field[PART] in kinds else ""
            )  # an `attention` is of the kind attention
            own = kinds.get(kind if isinstance(kind, str) else usual, {})
            fields = ({KIND: list(kinds)} if len(kinds) > 1 else {}) | own
        tree = node
    return fields


def _values(field: Field, tables: Mapping[str, Any]) -> list[str]:
    if isinstance(field, list):
        return field
    if field[PART] == "model":
        return list(tables["presets"])
    return [kind for kind in tables["parts"][field[PART]] if kind]


# -- writing the tables ------------------------------------------------------------------------------------------------


class _Tables:
    """What `completion.json` holds, collected from the classes of parts.

    presets: the function of each preset, by number.
    sizes:   the fields of each function, and the stacks of its model.
    parts:   the fields of each kind of a role, or under "" the fields of a class without kinds.
    """

    def __init__(self) -> None:
        from ...io.families import PRESETS, preset
        from .recipe import Recipe

        self.parts: dict[str, dict[str, Fields]] = {}
        self._add(Recipe, "Recipe")
        self.parts["Recipe"][""]["model"] = {PART: "model"}  # whose keys depend on its preset
        del self.parts["ModelChoice"]
        self.parts["model"] = {"": {"preset": list(PRESETS), "directory": [], "replace": []}}
        factories = list(dict.fromkeys(factory for factory, _ in PRESETS.values()))
        self.presets = {name: str(factories.index(factory)) for name, (factory, _) in PRESETS.items()}
        self.sizes: dict[str, Fields] = {}
        for name, number in self.presets.items():
            if number not in self.sizes:
                stacks = preset(name).stacks()
                hints = _hints(factories[int(number)])
                self.sizes[number] = {size: self._field(hint, None) for size, hint in hints.items()}
                self.sizes[number] |= {stack: self._field(type(spec), spec) for stack, spec in stacks}

    def to_json(self) -> str:
        return json.dumps({"presets": self.presets, "sizes": self.sizes, "parts": self.parts}, indent=0) + "\n"

    def _add(self, spec: Any, name: str) -> None:
        """Add a class, or every kind of a role, and the parts that their fields hold."""
        if name in self.parts:
            return
        kinds = (
            {kind: cls for kind, cls in spec.kinds.items() if cls.__module__.startswith("qkv.")} if spec.role else {}
        )
        table = self.parts[name] = {}
        for kind, cls in (kinds or {"": spec}).items():
            fields = cls.model_fields.items()
            table[kind] = {key: self._field(field.annotation, field.get_default()) for key, field in fields}

    def _field(self, annotation: Any, default: Any) -> Field:
        from ...core.spec import Spec

        spec, in_list = _spec_in(annotation, Spec)
        if spec is None:
            return _choices(annotation)
        name = spec.role or spec.__name__
        self._add(spec, name)
        kind = default.kind if isinstance(default, Spec) else spec.kind
        return {PART: name} | ({KIND: kind} if kind else {}) | ({EACH: True} if in_list else {})


def _hints(factory: Any) -> dict[str, Any]:
    hints = get_type_hints(getattr(factory, "func", factory))
    return {name: hint for name, hint in hints.items() if name != "return"}


def _spec_in(annotation: Any, base: type) -> tuple[Any, bool]:
    """The spec class in an annotation and whether it is that of a list's elements; None if there is none."""
    if isinstance(annotation, type) and issubclass(annotation, base):
        return annotation, False
    for part in get_args(annotation):
        spec, in_list = _spec_in(part, base)
        if spec is not None:
            return spec, in_list or get_origin(annotation) in (tuple, list, Sequence)
    return None, False


def _choices(annotation: Any) -> list[str]:
    """The values of booleans and literals; a field that takes other values besides has none."""
    if annotation is bool:
        return ["true", "false"]
    if get_origin(annotation) is Literal:
        return [json.dumps(value) if not isinstance(value, str) else value for value in get_args(annotation)]
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in (tuple, list, dict) or not parts:
        return []
    choices = [_choices(part) for part in parts if not _is_metadata(part)]
    return [choice for each in choices for choice in each] if all(choices) else []


def _is_metadata(part: Any) -> bool:
    """Whether an argument of `Annotated` is a constraint, no type."""
    return not isinstance(part, type) and get_origin(part) is None


def tables() -> str:
    """The text of `completion.json` for the present parts."""
    return _Tables().to_json()


if __name__ == "__main__":
    write_file(Path(__file__).with_name(TABLES), tables().encode())
