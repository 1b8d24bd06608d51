"""`qkv show`: a recipe or a preset with everything resolved, and what the model will see."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .say import console, echo

if TYPE_CHECKING:
    from rich.tree import Tree

    from ..experiments.batch_preview import Preview
    from ..models.base import ModelSpec
    from ..recipes.recipe import Recipe


def show(
    name: Annotated[
        str, typer.Argument(metavar="RECIPE-OR-PRESET", help="A recipe, a preset, a recipe's file or a run directory.")
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, such as `model.d_model=64`.")
    ] = None,
    data: Annotated[bool, typer.Option("--data", help="Show rows of a batch as the model will see them.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a recipe or a preset with every default spelled out, and the number of parameters."""
    from .. import families
    from ..recipes import recipe

    changes = list(settings or ())
    if name in families.presets() and name not in recipe.packaged():
        if data:
            raise ValueError(f"{name} is a preset, a model without data; --data is for recipes")
        _show_preset(name, changes, json)
        return
    loaded = load_recipe(name, changes)
    if data:
        from ..experiments.batch_preview import preview

        if not json:
            echo(f"Making {'the tokenizer and ' * (loaded.tokenizer is not None)}a batch …", err=True)
        _show_rows(preview(loaded, Path(name)), json)
    else:
        _show_recipe(loaded, json)


def load_recipe(name: str, changes: list[str]) -> Recipe:
    """A recipe with changes. Raises ValueError with the nearest names, of presets too, where there is none."""
    from .. import families
    from ..core.spec import nearest
    from ..recipes.recipe import Recipe, packaged

    simple = len(Path(name).parts) == 1 and not name.endswith((".yaml", ".yml")) and not Path(name).exists()
    if simple and name not in packaged():
        raise ValueError(f"there is no recipe or preset {name!r}; {nearest(name, [*packaged(), *families.presets()])}")
    return Recipe.load(name, changes)


def load_preset(name: str, changes: list[str]) -> ModelSpec:
    """A preset's spec with changes such as `d_model=64` or `decoder.position=alibi`."""
    from ..recipes.overrides import apply
    from ..recipes.recipe import ModelChoice

    tree = apply({"model": {"preset": name}}, [f"model.{text}" for text in changes])
    return ModelChoice.from_dict(tree["model"]).spec()


def _show_preset(name: str, changes: list[str], json: bool) -> None:
    spec = load_preset(name, changes)
    _print({"preset": name, "parameters": spec.n_parameters, "model": spec.to_dict()}, json)


def _show_recipe(recipe: Recipe, json: bool) -> None:
    spec = recipe.spec()
    tree = recipe.resolve(recipe.vocab_size).to_dict()
    tree["model"] = {**tree["model"], "parameters": spec.n_parameters, "spec": spec.to_dict()}
    _print(tree, json)
    if not json and recipe.vocab_size and "vocab_size" not in recipe.model.sizes:
        echo(f"Parameters are those of the largest vocabulary that the tokenizer may learn, {recipe.vocab_size:,}.")


def _show_rows(found: Preview, json: bool) -> None:
    if json:
        from dataclasses import asdict

        echo(dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    width = max(8, *(len(label) for row in found.rows for label, _ in row.lines()))
    for row in found.rows:
        for label, text in row.lines():
            typer.secho(f"{label:>{width}} ", nl=False, bold=True)
            echo(text)
        echo()
    echo(str(found))


def _print(tree: Mapping[str, Any], json: bool) -> None:
    if json:
        echo(dumps(tree, indent=2, ensure_ascii=False))
        return
    from rich.markup import escape
    from rich.tree import Tree

    root = Tree(f"[bold]{escape(str(tree.get('name') or tree.get('preset')))}[/]")
    _grow(root, {key: value for key, value in tree.items() if key not in ("name", "preset")})
    console().print(root)


def _grow(tree: Tree, node: Mapping[str, Any]) -> None:
    from rich.markup import escape

    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            kind = value.get("kind")
            rest = {name: item for name, item in value.items() if name != "kind"}
            _grow(tree.add(f"[bold]{escape(key)}[/]" + (f": [cyan]{escape(str(kind))}[/]" if kind else "")), rest)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            _grow(tree.add(f"[bold]{escape(key)}[/]"), {str(i): item for i, item in enumerate(value)})
        else:
            shown = f"{value:,}" if key == "parameters" else dumps(value, ensure_ascii=False)
            tree.add(f"{escape(key)}: {escape(shown)}")
