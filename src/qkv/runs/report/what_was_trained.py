"""Report section on what was trained: data, model, tokenizer, base model, date, command and recipe."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from ...core.spec import counted
from ...data.tokenizers.tokenizer import Tokenizer
from ...io.directories.layout import CONFIG, RECIPE, TOKENIZER, read_text
from ...io.directories.run_config import read_config
from ...look.html import render
from .story import Section, Story

_FILES = (
    "source",
    "target",
    "images",
    "labels",
    "mask",
    "directory",
)  # settings of data that name files, beside `…path`


def what_was_trained(story: Story) -> Section | None:
    """A table of what the run directory says about the experiment, the command that repeats it, and the recipe."""
    rows = [(name, value) for name, value in _rows(story) if value]
    recipe = story.run_dir / RECIPE
    text = read_text(recipe) if recipe.exists() else ""
    if not rows and not text:
        return None
    return Section(
        "What was trained", Markup(render("trained.html", rows=rows, command=_command(story), recipe=text.strip()))
    )


def _rows(story: Story) -> Iterator[tuple[str, str]]:
    data, model, adapter = (story.recipe.get(key) or {} for key in ("data", "model", "adapter"))
    yield "Task", story.task or ""
    yield "Data", "\n".join([str(data.get("kind", "")), *_files(data)]).strip()
    encoding = str(data.get("encoding") or "utf-8")
    yield "Encoding", "" if encoding.lower().startswith("utf") else f"{encoding} (data.encoding)"
    yield "Examples", str(story.start.get("examples") or "")
    yield "Languages", _languages(data)
    yield "Model", _model(story)
    yield "Tokenizer", _tokenizer(story)
    yield "Base model", str(model.get("directory") or "")
    yield "Adapter", str(adapter.get("kind", ""))
    yield "Started", _started(story)
    yield "Device", str(story.start.get("device", ""))


def _files(data: Mapping[str, Any]) -> Iterator[str]:
    """`path: data.tsv` for each setting that names a file or a folder, also in the parts of a mixture."""
    for key, value in data.items():
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, str) and value and (key.endswith("path") or key in _FILES):
            yield f"{key}: {value}"
        for part in parts:
            if isinstance(part, Mapping):
                yield from _files(part)


def _languages(data: Mapping[str, Any]) -> str:
    source, target = data.get("source_language"), data.get("target_language")
    if source or target:
        return f"{source or '?'} → {target or '?'}"
    languages = data.get("languages") or data.get("language") or ""
    return languages if isinstance(languages, str) else ", ".join(map(str, languages))


def _model(story: Story) -> str:
    """The model in one line and its exact number of parameters; its preset if the spec can't be read."""
    try:
        spec, _ = read_config(story.run_dir / CONFIG)
    except (OSError, ValueError):
        return str((story.recipe.get("model") or {}).get("preset") or "")
    return f"{spec!r}\n{counted(story.parameters or spec.n_parameters, 'parameter')}"


def _tokenizer(story: Story) -> str:
    try:
        tokenizer = Tokenizer.load(story.run_dir / TOKENIZER)
    except (OSError, ValueError):
        return str((story.recipe.get("tokenizer") or {}).get("kind", ""))
    if tokenizer.sources is tokenizer:
        return f"{tokenizer.kind}, {counted(tokenizer.vocab_size, 'token')}"
    return (
        f"{tokenizer.kind}, {counted(tokenizer.vocab_size, 'token')} for targets; "
        f"{tokenizer.sources.kind}, {counted(tokenizer.sources.vocab_size, 'token')} for sources"
    )


def _started(story: Story) -> str:
    resumed = story.history.count("resumed")
    times = "" if not resumed else f", resumed {'once' if resumed == 1 else f'{resumed} times'}"
    return f"{story.start['date']}{times}" if story.start.get("date") else ""


def _command(story: Story) -> str:
    """The command that began the run; if it began in Python, one that trains its recipe in another directory."""
    command = story.start.get("command")
    if command:
        return str(command)
    if not story.recipe.get("model") or (story.recipe.get("data") or {}).get("kind") == "memory":
        return ""
    recipe = str(story.run_dir / RECIPE)
    return shlex.join(["qkv", "train", recipe, "--out", f"{story.run_dir}-again"])
