"""`qkv.train`: train a recipe from Python, on files or on data in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ...core.several import in_our_names, shown, worded
from ...core.spec import Spec, brief
from ...core.synonyms import same
from ...data.memory import Memory
from ...data.memory_series import MemorySeries
from ...data.readers.time_series import SeriesSource
from ...data.source import SPLITS, Example, Skipped, Source, Split
from ...training.logging.metrics_file import Callback
from ..inference.run import Run, load
from ..recipes.recipe import COMPARE, Recipe, override, tree
from .train import train as train_recipe

_FIELDS = {
    "classify": ("text", "label"),
    "regress": ("text", "score"),
    "similarity": ("text", "pair", "score"),
    "tag": ("words", "tags"),
    "answer": ("question", "context", "answers"),
    "choice": ("text", "choices", "answer"),
    "image-classify": ("image", "label"),
}
"""The fields that tasks read, in the order of tuples; other tasks read what their recipe's own data have."""


@worded
@in_our_names()
def train(
    recipe: str | PathLike[str] | Mapping[str, Any] | Recipe,
    out: str | PathLike[str] | None = None,
    *,
    data: object = None,
    eval_data: object = None,
    columns: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    device: str | torch.device = "auto",
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Run:
    """Train a recipe, evaluate it, write the run directory `out`, and return the trained model.

    recipe:    the name of a recipe (`qkv list recipes`), a YAML file or a run directory, its tree as a dictionary, or a
               `Recipe`.
    out:       the run directory; by default `runs/NAME`.
    data:      the training data: a list of dictionaries, tuples or texts, a pandas or polars data frame, a
               `datasets.Dataset` or `DatasetDict`, a path, the settings of a source (`{"kind": "pairs", "path": "my.tsv"}`),
               or a `Source`. By default, the recipe's own. What they lack for validation and test is held out of them.
    eval_data: data for validation, in the same form as `data`, or a path if that is one.
    columns:   for rows, the column of each field of an example: `{"source": "de", "target": "en"}`. By default, the
               columns have the names of fields.
    changes:   settings as on the command line: `{"training.optimizer.lr": 3e-4, "model.d_model": 256}`.
    epochs, steps, seed: short for `training.max_epochs`, `training.max_steps` and `seed` in `changes`.

    A setting can be given by any of these arguments; two different values for the same setting are refused. Keywords may
    also be other libraries' names that mean the same: `learning_rate=3e-4`, `output_dir="mine"`.

    resume:    continue the run in `out` from its last save; for rows, with the same rows.
    overwrite: replace the run in `out`.
    callbacks: functions that are called with every record that `metrics.jsonl` gets, such as
               `{"type": "train", "step": 10, "loss": 2.31, …}`.
    progress:  print what the command prints.

    Ctrl-C saves, and then raises KeyboardInterrupt. Raises ValueError, in one sentence, if something does not fit together.
    """
    short = {"training.max_epochs": epochs, "training.max_steps": steps, "seed": seed}
    changed, of_rows = dict(_mapping(changes, "changes")), {}
    if data is not None and not settings_of_source(data):
        named = {key: same(key) or key for key in changed}
        of_rows = {name: changed.pop(key) for key, name in named.items() if name.split(".")[0] == "data"}
    given = {"data": _data_settings(data, eval_data, columns), "changes": changed}
    given["epochs, steps and seed"] = {key: value for key, value in short.items() if value is not None}
    loaded = _load(recipe, _together(given))
    if data is not None and not settings_of_source(data):
        loaded = _with_source(loaded, data, eval_data, columns, of_rows)
    folder = Path("runs") / loaded.name if out is None else Path(out)
    console = Console() if progress else Console(quiet=True)
    result = train_recipe(
        loaded, folder, resume=resume, overwrite=overwrite, device=device, console=console, callbacks=callbacks
    )
    if result.evaluation is None:
        raise KeyboardInterrupt(f"the run in {folder} is saved; continue it with resume=True")
    return load(folder, device)


def _mapping(value: Mapping[str, Any] | None, what: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(
            f"{what} are a dictionary of settings, such as {{'training.max_steps': 100}}, not {shown(value)}"
        )
    return value or {}


def settings_of_source(data: object) -> bool:
    """Whether `data` name files or settings, rather than hold examples."""
    if isinstance(data, str | PathLike):
        return True
    return isinstance(data, Mapping) and ("kind" in data or not set(data) & set(SPLITS))


def _together(given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """All settings, by the argument that gave them. Raises ValueError if two arguments give one setting different values."""
    origins: dict[str, tuple[str, Any]] = {}
    for argument, settings in given.items():
        for whole, value in settings.items():
            for key, leaf in _leaves(whole, value):
                other, before = origins.setdefault(key, (argument, leaf))
                if other != argument and before != leaf:
                    both = f"as {brief(before)} by {other} and as {brief(leaf)} by {argument}"
                    raise ValueError(f"{key} is given twice, {both}; give it once")
    return [f"{key}={_plain(value, key)}" for settings in given.values() for key, value in settings.items()]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The single settings of a value: `data.kind` and `data.path` of `data`."""
    value = value.to_dict() if isinstance(value, Spec) else os.fspath(value) if isinstance(value, PathLike) else value
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}", item)
    else:
        yield key, value


def _data_settings(data: Any, eval_data: Any, columns: Mapping[str, str] | None) -> dict[str, Any]:
    """The settings for data that are a path or the settings of a source. Raises ValueError if arguments don't fit."""
    if eval_data is not None and (data is None or settings_of_source(data) != settings_of_source(eval_data)):
        raise ValueError("eval_data have the form of data: rows beside rows, or a path beside a path")
    if columns is not None and (data is None or settings_of_source(data) or isinstance(data, Source)):
        raise ValueError("columns are for rows in memory; for files, name columns with the settings of data in changes")
    if data is None or not settings_of_source(data):
        return {}
    if isinstance(data, Mapping):
        keys = {"data": data} if "kind" in data else {f"data.{key}": value for key, value in data.items()}
    else:
        keys = {"data.path": data}
    if isinstance(eval_data, Mapping):
        raise ValueError("eval_data are a path beside a path; name other settings of the validation data in data")
    if eval_data is not None:
        keys["data.validation_path"] = eval_data
    return keys


def _load(recipe: str | PathLike[str] | Mapping[str, Any] | Recipe, settings: list[str]) -> Recipe:
    if isinstance(recipe, Recipe):
        return recipe.change(settings) if settings else recipe
    if isinstance(recipe, Mapping):
        return Recipe.from_tree(override(dict(recipe), settings))
    name = str(recipe)
    if tree(name).get(COMPARE):
        raise ValueError(f"{name} is a comparison of several recipes; run it with `qkv train {name}`")
    return Recipe.load(name, settings)


def _with_source(
    recipe: Recipe, data: Any, eval_data: Any, columns: Mapping[str, str] | None, changes: Mapping[str, Any]
) -> Recipe:
    """The recipe with data in memory, and `changes` to their settings. Raises ValueError if the examples lack a field that
    its task reads, and for a change that such data don't have."""
    if isinstance(data, Source):
        return recipe.model_copy(update={"data": _changed(data, changes)})
    known = SeriesSource.model_fields if isinstance(recipe.data, SeriesSource) else {}
    unknown = next((key for key in changes if key.removeprefix("data.") not in known), None)
    if unknown is not None:
        has = f"have only {', '.join(known)}" if known else "have no settings"
        raise ValueError(
            f"{unknown} is a setting of files, and rows in memory {has}; leave it out of changes, or give data as a path "
            "or as the settings of a source"
        )
    if isinstance(recipe.data, SeriesSource):
        if eval_data is not None or columns is not None:
            raise ValueError("a series is split by time (data.shares), and all its columns are read: give data alone")
        own = {name: getattr(recipe.data, name) for name in SeriesSource.model_fields}
        settings = own | {key.removeprefix("data."): value for key, value in changes.items()}
        return recipe.model_copy(update={"data": MemorySeries.of(data, **settings)})
    fields = _FIELDS.get(recipe.task.kind) if recipe.task is not None else None
    names = columns if columns is not None or fields is None else _by_position(data, fields)
    source = Memory.of(data, eval_data, columns=names)
    for split in SPLITS:
        if source.gives(split):
            _check_fields(source.first_of(split), split, fields, recipe.task is None)
    return recipe.model_copy(update={"data": source})


def _check_fields(example: Example | Skipped, split: Split, fields: Sequence[str] | None, no_task: bool) -> None:
    """Raises ValueError if the first example of a split lacks a field that the recipe reads."""
    if isinstance(example, Skipped):
        return
    missing = [name for name in fields or () if name not in example]
    if fields is None and no_task:
        missing = [] if {"text", "target"} & set(example) else ["text, or source and target"]
    if missing:
        has = ", ".join(name for name in example if name != "where") or "nothing"
        of = "" if split == "train" else f" of the {split} rows"
        raise ValueError(
            f"the first row{of} has {has}, and this recipe reads {', '.join(fields or missing)}; name the columns, as in "
            f"columns={{{', '.join(f'{brief(name)}: …' for name in (fields or ('source', 'target')))}}}"
        )


def _changed(source: Source, changes: Mapping[str, Any]) -> Source:
    """The source with changes such as `{"data.documents": "line"}`. Raises ValueError for one that it doesn't have."""
    if not changes:
        return source
    _together({"data": {f"data.{name}": getattr(source, name) for name in source.model_fields_set}, "changes": changes})
    changed = override({"data": source.to_dict()}, [f"{key}={_plain(value, key)}" for key, value in changes.items()])
    return Source.from_dict(changed["data"])


def _by_position(data: Any, fields: tuple[str, ...]) -> dict[str, str] | None:
    """The columns of a list of tuples, which have no names: the fields of the task."""
    first = data[0] if isinstance(data, list) and data else None
    return {name: name for name in fields} if isinstance(first, tuple | list) else None


def _plain(value: Any, key: str) -> str:
    """A value as YAML. Raises ValueError for what a recipe can't hold."""
    try:
        return json.dumps(value, default=_json_form, ensure_ascii=False)
    except TypeError:
        raise ValueError(
            f"{key} is a {type(value).__name__}; give a number, a text, a list, a dictionary or a spec"
        ) from None


def _json_form(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_dict()
    if isinstance(value, PathLike):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
