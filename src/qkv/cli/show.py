"""`qkv show`: a resolved recipe, preset, Hub model or GGUF file, or a batch of a recipe's data."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, RecipeOrPreset, Settings
from .say import console, echo, echo_json

if TYPE_CHECKING:
    from rich.tree import Tree

    from ..nn.models.base import ModelSpec
    from ..runs.recipes.recipe import Recipe
    from ..runs.train.batch_preview import Preview

PRESET = "preset:"


def show(
    name: RecipeOrPreset,
    settings: Settings = None,
    data: Annotated[bool, typer.Option("--data", help="Show rows of a batch as the model will see them.")] = False,
    json: Json = False,
) -> None:
    """Show a recipe, a preset, or a model in the Hub's format or a GGUF file, with its number of parameters."""
    from ..io.hub.gguf.container import is_gguf

    changes = list(settings or ())
    if (preset := preset_of(name)) is not None:
        if data:
            raise ValueError(f"{preset} is a preset, which has no data; --data is for recipes")
        spec = load_preset(preset, changes)
        _print({"preset": preset, **_parameters(spec), "model": spec.to_dict()}, json)
        return
    if (model := bare_model(name)) is not None:
        (_show_gguf if is_gguf(model) else _show_directory)(model, data, changes, json)
        return
    loaded = load_recipe(name, changes)
    if data:
        from ..runs.train.batch_preview import preview

        if not json:
            echo(f"Making {'the tokenizer and ' * (loaded.tokenizer is not None)}a batch …", err=True)
        _show_rows(preview(loaded, Path(name)), json)
    else:
        _show_recipe(loaded, json)


def _show_directory(folder: Path, data: bool, changes: list[str], json: bool) -> None:
    """Print the spec of a model in a directory without a recipe."""
    from ..io.directories.locate import name_of
    from ..io.directories.spec import spec_of

    _check_bare(folder, data, changes)
    spec = spec_of(str(folder))
    _print({"directory": name_of(folder), **_parameters(spec), "model": spec.to_dict()}, json)


def _show_gguf(path: Path, data: bool, changes: list[str], json: bool) -> None:
    """Print the spec of a model in a GGUF file, how its tensors are stored, and what else it says of itself."""
    from ..io.directories import gguf_load
    from ..io.hub.gguf import container

    _check_bare(path, data, changes)
    spec, file = gguf_load.spec(path), container.read(path)
    types: dict[str, int] = {}
    for tensor in file.stored.values():
        types[tensor.type.name] = types.get(tensor.type.name, 0) + 1
    said = {key: value for key, value in file.metadata.items() if isinstance(value, str | int | float)}
    said.pop("tokenizer.chat_template", None)
    _print({"file": str(path), **_parameters(spec), "tensors": types, "metadata": said, "model": spec.to_dict()}, json)


def _check_bare(path: Path, data: bool, changes: list[str]) -> None:
    """Raise ValueError for options that only a recipe has."""
    if data:
        raise ValueError(f"{path} is a model without a recipe, so it has no data; --data is for recipes")
    if changes:
        raise ValueError(f"{path} is a model without a recipe; leave out {changes[0]!r}")


def preset_of(name: str) -> str | None:
    """The preset that a name means; None for a recipe. A name of both is the recipe's, and `preset:gpt` the preset."""
    from ..io import families
    from ..runs.recipes.packaged import packaged

    if name.startswith(PRESET):
        return name.removeprefix(PRESET)
    if name not in families.presets():
        return None
    if name in packaged():
        echo(f"{name} is a recipe and a preset; this is the recipe, and {PRESET}{name} is the preset", err=True)
        return None
    return name


def bare_model(name: str) -> Path | None:
    """Return the directory or GGUF file that a name stands for, if it holds a model without a recipe; otherwise None. Raises
    ValueError for a directory with an adapter."""
    from ..io.directories.layout import CONFIG, RECIPE
    from ..io.directories.locate import SHIPPED, SMALL_ENGLISH, locate
    from ..io.hub.gguf.container import is_gguf

    path = SHIPPED / name if name == SMALL_ENGLISH and not Path(name).exists() else Path(name)
    if path.is_dir():
        locate(path)
    is_bare = (path / CONFIG).is_file() and not (path / RECIPE).is_file()
    return path if is_bare or is_gguf(path) else None


def model_of(name: str, changes: list[str]) -> tuple[str, ModelSpec, Recipe | None]:
    """The name and spec of a preset, of a model in a directory or GGUF file, or of a recipe's model, with the recipe."""
    from ..io.directories.locate import name_of
    from ..io.directories.spec import spec_of

    if (preset := preset_of(name)) is not None:
        return preset, load_preset(preset, changes), None
    if (model := bare_model(name)) is not None:
        _check_bare(model, False, changes)
        return name_of(model), spec_of(str(model)), None
    recipe = load_recipe(name, changes)
    return name, recipe.spec(), recipe


def load_recipe(name: str, changes: list[str]) -> Recipe:
    """Load a recipe with changes. Raises ValueError with the nearest recipes and presets for an unknown name."""
    from ..core.spec import nearest
    from ..io import families
    from ..runs.recipes.packaged import packaged
    from ..runs.recipes.recipe import Recipe
    from ..runs.recipes.synonyms import recipe_for

    simple = len(Path(name).parts) == 1 and not name.endswith((".yaml", ".yml")) and not Path(name).exists()
    if simple and name not in packaged():
        advice = recipe_for(name) or nearest(name, [*packaged(), *families.presets()])
        raise ValueError(f"there is no recipe or preset {name!r}; {advice}")
    return Recipe.load(name, changes)


def load_preset(name: str, changes: list[str]) -> ModelSpec:
    """Return the spec of a preset with changes such as `d_model=64` or `decoder.position=alibi`.

    Changes may have the prefix of recipes: `model.d_model=64`.
    """
    from ..runs.recipes.model_choice import ModelChoice
    from ..runs.recipes.overrides import apply

    tree = apply({"model": {"preset": name}}, [f"model.{text.removeprefix('model.')}" for text in changes])
    return ModelChoice.from_dict(tree["model"]).spec()


def _show_recipe(recipe: Recipe, json: bool) -> None:
    spec = recipe.spec()
    tree = recipe.resolve(recipe.vocab_size).to_dict()
    tree["model"] = {**tree["model"], "parameters": spec.n_parameters, "spec": spec.to_dict()}
    _print(tree, json)
    if not json and recipe.vocab_size and "vocab_size" not in recipe.model.sizes:
        echo(
            f"The number of parameters is for the largest vocabulary that the tokenizer may have, {recipe.vocab_size:,}."
        )


def _show_rows(preview: Preview, json: bool) -> None:
    if json:
        from dataclasses import asdict

        echo_json(asdict(preview))
        return
    width = max(8, *(len(label) for row in preview.rows for label, _ in row.lines()))
    for row in preview.rows:
        for label, text in row.lines():
            typer.secho(f"{label:>{width}} ", nl=False, bold=True)
            echo(text)
        echo()
    echo(str(preview))


def _print(tree: Mapping[str, Any], json: bool) -> None:
    if json:
        echo_json(tree)
        return
    from rich.markup import escape
    from rich.tree import Tree

    title = next(str(tree[key]) for key in ("name", "preset", "directory", "file") if tree.get(key))
    root = Tree(f"[bold]{escape(title if 'name' in tree or 'preset' in tree else Path(title).resolve().name)}[/]")
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


def _parameters(spec: ModelSpec) -> dict[str, int]:
    """The number of parameters, and of those that a token uses if a mixture of experts leaves some out."""
    active = spec.cost().active
    return {"parameters": spec.n_parameters} | ({} if active == spec.n_parameters else {"active parameters": active})
