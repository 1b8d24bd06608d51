"""YAML as recipes use it: plain data, with the scalars of YAML 1.2.

PyYAML speaks YAML 1.1, where `no` is false (and Norwegian is lost), `3e-4` is a string and `12:30` is 750. Here only
`true` and `false` are booleans, every usual number is a number, and nothing is a date. A key given twice, an alias (an
expanding one can fill the memory) and a tag are errors.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from .spec import brief

_SCALARS = (
    ("tag:yaml.org,2002:null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?(?:0|[1-9][0-9_]*)", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  (PyYAML's own shape)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not allowed here", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        seen: set[str] = set()
        for (at, _), key in zip(node.value, keys, strict=True):
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"the key {brief(key)} is not a name", problem_mark=at.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(problem=f"{brief(key)} is given twice", problem_mark=at.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _tag, _pattern, _first in _SCALARS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag, re.compile(f"^{_pattern}$"), _first)


def _float(loader: _Loader, node: Any) -> float:
    return float(loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Dumper.add_representer(
    list,
    lambda dumper, value: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", value, flow_style=not any(isinstance(item, dict | list) for item in value)
    ),
)


def load(text: str, name: str = "the text") -> Any:
    """The data in `text`. Raises ValueError that names `name`, line and column if it is not such YAML."""
    try:
        return yaml.load(text, Loader=_Loader)  # a SafeLoader: constructs plain data only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ValueError(f"{name}{where}: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not YAML: {error}") from None


def dump(data: object) -> str:
    """`data` as YAML that `load` reads back to the same value; keys keep their order, short lists their line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
