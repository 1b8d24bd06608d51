"""Overrides of `qkv train` that turn the model of a recipe into one of a Hub family."""

from __future__ import annotations

from typing import Any

from ...core.spec import Spec
from ...nn.models.heads.language_model import LanguageModel
from ...nn.models.transformer import Transformer
from .family import difference


def changes_to(spec: Transformer, target: Transformer) -> dict[str, Any]:
    """The dotted paths at which a spec differs from another, with the other's values, as `Spec.replace` takes them. A path
    that all blocks of a stack share has `*` for the block."""
    values: dict[str, Any] = {}
    for path in difference(target, spec):
        place, value = _first_difference(spec, target, path.split("."))
        values[place] = value
    changes: dict[str, Any] = {}
    for path, value in values.items():
        before, in_block, after = path.partition(".blocks.")
        _, _, rest = after.partition(".")
        stack = getattr(spec, before, None) if in_block and rest else None
        same = stack is not None and all(
            values.get(f"{before}.blocks.{i}.{rest}", ...) == value for i in range(stack.n_layers)
        )
        changes[f"{before}.blocks.*.{rest}" if same else path] = value
    return changes


def overrides(spec: Transformer, target: Transformer) -> str:
    """Settings of `qkv train` that make one spec of another; "" if it has another head, which is another task's. Heads other
    than language models are the recipe's own key."""
    changes = changes_to(spec, target)
    if "head" in changes:
        return ""
    own = (
        {}
        if isinstance(target.head, LanguageModel)
        else {k: v for k, v in changes.items() if k.partition(".")[0] == "head"}
    )
    model = {key: value for key, value in changes.items() if key not in own}
    settings = [f"{key}={_flow(value)}" for key, value in own.items()]
    return " ".join([*([f"model.replace={_flow(model)}"] if model else []), *settings])


def _flow(value: Any) -> str:
    """A value as YAML on one line, quoted for the shell if it has spaces."""
    import yaml  # imported here: only messages need it

    text = yaml.safe_dump(value, default_flow_style=True, width=1 << 20).removesuffix("...\n").strip()
    return f"'{text}'" if " " in text else text


def _first_difference(spec: Any, target: Any, path: list[str]) -> tuple[str, Any]:
    """The first part along a path that is of another kind or absent in one of two specs, or the end of the path, with the
    target's value there."""
    for i, name in enumerate(path):
        ours, theirs = _part(spec, name), _part(target, name)
        if isinstance(ours, tuple) and isinstance(theirs, tuple):
            same = len(ours) == len(theirs)
        else:
            same = isinstance(ours, Spec) and type(ours) is type(theirs)
        if not same:
            return ".".join(path[: i + 1]), _as_value(theirs)
        spec, target = ours, theirs
    return ".".join(path), _as_value(target)


def _part(value: Any, name: str) -> Any:
    if isinstance(value, tuple):
        return value[int(name)] if name.isdigit() and int(name) < len(value) else None
    return getattr(value, name, None)


def _as_value(value: Any) -> Any:
    """A value of a spec as YAML holds it; a part without settings is its kind."""
    if isinstance(value, Spec):
        fields = value.to_dict()
        return fields["kind"] if set(fields) == {"kind"} else fields
    if isinstance(value, tuple):
        return [_as_value(item) for item in value]
    return value
