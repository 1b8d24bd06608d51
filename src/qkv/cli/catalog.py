"""`qkv list`: what there is to choose from, each with one line about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .say import console, echo

if TYPE_CHECKING:
    from ..patterns.gallery import Example

Row = tuple[str, str]
LENGTH = 4096  # of the rows whose pairs are counted
DRAWN, SAVED = 16, 64  # tokens in a terminal's picture, and in a file's


def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WHAT",
            help="recipes, presets or metrics; of parts: patterns, positions, scalings, scores, mechanisms, feedforwards, "
            "norms, inputs, heads, caches; of training: objectives, optimizers, schedules, averages, adapters; of data: "
            "sources, tasks, tokenizers, augmentations, mixings.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Patterns: a folder for an SVG and a PNG of each.")] = None,
) -> None:
    """List what there is to choose from, each with a line about it."""
    if what is None:
        raise ValueError(f"list what? One of {', '.join(LISTS)}")
    from ..core.installed_parts import import_installed

    import_installed()
    if what not in LISTS:
        from ..core.spec import nearest

        raise ValueError(f"there is no list of {what!r}; {nearest(what, LISTS)}")
    if out is not None:
        if what != "patterns":
            raise ValueError(f"--out is for the pictures of patterns, and {what} have none; leave it out")
        _save(out)
    if what == "patterns" and not json:
        _draw()
        return
    rows = LISTS[what]()
    if json:
        from json import dumps

        echo(dumps(dict(rows), indent=2, ensure_ascii=False))
        return
    from rich.table import Table

    table = Table(title=what, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*map(_plain, row))
    console().print(table)


def _recipes() -> list[Row]:
    from ..core import yamls
    from ..recipes import recipe

    return [(name, str(yamls.load(text, name)["description"])) for name, text in recipe.packaged().items()]


def _presets() -> list[Row]:
    from .. import families

    return [
        (name, f"{families.preset(name).n_parameters:,} parameters. {_line(factory)}")
        for name, (factory, _) in families.PRESETS.items()
    ] + _kinds({name: cls for name, (cls, _) in families.presets().items() if name not in families.PRESETS})


def _patterns() -> list[Row]:
    from ..patterns.gallery import GALLERY

    said = [(x.spelling, f"{x.about} {_pairs(x)}" + f" {x.paper}." * bool(x.paper)) for x in GALLERY]
    return said + _patterns_from_outside()


def _patterns_from_outside() -> list[Row]:
    """Kinds that are registered and that no example has."""
    from ..patterns.basic import Pattern
    from ..patterns.gallery import GALLERY

    shown = {part.kind for example in GALLERY for _, part in example.pattern.walk()}
    return _kinds({kind: cls for kind, cls in Pattern.kinds.items() if kind not in shown})


def _pairs(example: Example) -> str:
    return f"{example.pattern.pairs(LENGTH):,} of {LENGTH**2:,} pairs at n = {LENGTH:,}."


def _draw() -> None:
    """Each pattern as small characters, beside what there is to say about it."""
    from rich.table import Table

    from ..patterns.gallery import GALLERY
    from ..patterns.pictures import characters

    table = Table(title="patterns", title_justify="left", show_header=False, show_lines=True, pad_edge=False)
    table.add_column(style="blue", no_wrap=True, min_width=DRAWN)
    table.add_column()
    for example in GALLERY:
        said = [f"[bold]{_plain(example.spelling)}[/bold]", example.about, _pairs(example), example.paper]
        table.add_row(characters(example.pattern.mask(DRAWN)), "\n".join(line for line in said if line))
    for kind, about in _patterns_from_outside():
        table.add_row("", f"[bold]{_plain(kind)}[/bold]\n{_plain(about)}")
    console().print(table)


def _save(folder: Path) -> None:
    """Pictures of every pattern, named by what it is called."""
    from ..patterns.gallery import GALLERY

    folder.mkdir(parents=True, exist_ok=True)
    for example in GALLERY:
        name = "-".join(re.findall(r"[A-Za-z0-9_]+|~", example.spelling)).replace("~", "not").lower()
        for ending in ("svg", "png"):
            example.pattern.save_picture(folder / f"{name}.{ending}", SAVED)


ROLES = {
    "positions": "positions.base.Position",
    "scalings": "positions.rope_scaling.Scaling",
    "scores": "attention.scores.Score",
    "mechanisms": "attention.multi_head.Mixer",
    "weightings": "attention.weighting.Weighting",
    "feedforwards": "layers.feedforward.FeedForwardLayer",
    "norms": "layers.norm.Norm",
    "placements": "models.placement.Placement",
    "inputs": "layers.embedding.Input",
    "heads": "models.heads.text.Head",
    "caches": "kv_cache.kinds.CacheKind",
    "objectives": "training.objective.Objective",
    "optimizers": "training.optimizers.base.Optimizer",
    "schedules": "training.optimizers.schedules.Schedule",
    "averages": "training.weight_averaging.Average",
    "adapters": "layers.lora.Adapter",
    "sources": "data.source.Source",
    "tasks": "data.task.Task",
    "tokenizers": "tokenizers.training.spec.TokenizerSpec",
    "augmentations": "data.media.augment.Augmentation",
    "mixings": "data.media.augment.Mixing",
}
"""The roles whose kinds are listed, by the class that holds their registry."""


def _role(name: str) -> Callable[[], list[Row]]:
    def rows() -> list[Row]:
        from importlib import import_module

        from ..experiments import train  # noqa: F401  (register every kind that a recipe may name)
        from ..recipes import recipe  # noqa: F401  (register every kind that a recipe may name)

        module, _, base = ROLES[name].rpartition(".")
        kinds = getattr(import_module(f"qkv.{module}"), base).kinds
        return _kinds({kind: cls for kind, cls in kinds.items() if not cls.__module__.startswith("qkv.experiments.")})

    return rows


def _metrics() -> list[Row]:
    from .. import tasks  # noqa: F401  (register their metrics)
    from ..metrics.display import display_of, errors, qualities

    def row(name: str, better: str) -> Row:
        about = display_of(name).about or display_of(name).title
        return name, f"{about}; {better} is better."

    return [row(name, "higher") for name in qualities()] + [row(name, "lower") for name in errors()]


LISTS: dict[str, Callable[[], list[Row]]] = {
    "recipes": _recipes,
    "presets": _presets,
    "patterns": _patterns,
    **{name: _role(name) for name in ROLES},
    "metrics": _metrics,
}


def _kinds(kinds: Any) -> list[Row]:
    return [(name, f"{_line(member)} {_origin(member)}".strip()) for name, member in kinds.items()]


def _origin(thing: Any) -> str:
    """The module of a part that is defined outside qkv, as a sentence."""
    return "" if thing.__module__.split(".")[0] == "qkv" else f"From {thing.__module__}."


def _line(thing: Any) -> str:
    """The first sentence of a docstring, on one line; `et al.` and `eq.` end none."""
    thing = getattr(thing, "func", thing)  # of a partial, what it calls
    paragraph = " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<!al)(?<!eq)\. ", paragraph, maxsplit=1)[0]
    return f"{sentence.rstrip('.:')}." if sentence else ""


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
