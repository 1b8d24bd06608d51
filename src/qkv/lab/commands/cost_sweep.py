"""`qkv cost NAME NAME …` and `qkv cost NAME --sweep tokens=1k..1M`: costs side by side, as a table, JSON or plots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.options import Json, Overwrite
from ...cli.say import console, echo, echo_json

if TYPE_CHECKING:
    from markupsafe import Markup

    from ...nn.cost.sweep import ModelCosts

Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME... [KEY=VALUE]...", help="Recipes or presets, and settings to change in all of them."),
]
Length = Annotated[int, typer.Option(metavar="N", help="Tokens per row, on each side of a pair.", min=1)]


def compare(names: Names, length: Length = 512, json: Json = False) -> None:
    """Show the costs of several models side by side: parameters, FLOPs of a token, weights and cache in bf16."""
    from ...cli.show import model_of
    from ...nn.cost.sweep import costs_of

    models, changes = _split(names)
    rows = [costs_of(*model_of(name, changes)[:2], length) for name in models]
    if json:
        echo_json([{"model": row.name, **_fields(row)} for row in rows])
    else:
        _print(rows)


def sweep(
    names: Names,
    over: Annotated[
        str,
        typer.Option(
            "--sweep", metavar="KEY=A..B", help="`tokens`, or a size of the preset: n_layers=2..32, n_layers=6,12."
        ),
    ] = "tokens=128..1k",
    length: Length = 512,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the costs into an .svg or .html file.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Show the costs of models for sizes that double: tokens, or any size of a preset."""
    from ...cli.show import model_of
    from ...core.atomic import write_file
    from ...io.directories.layout import claim_page
    from ...nn.cost.sweep import costs_of, read_range

    key, sizes = read_range(over)
    if out is not None and out.suffix not in (".svg", ".html"):
        raise ValueError(f"--out draws an .svg or .html file, not {out.name}")
    claim_page(out, overwrite)
    models, changes = _split(names)
    if out is not None and len(models) > 4:
        raise ValueError(f"a drawing has up to four models, not {len(models)}; leave out some, or --out")
    rows = []
    for name in models:
        for size in sizes:
            title, spec, _ = model_of(name, changes if key == "tokens" else [*changes, f"{key}={size}"])
            rows.append((title, size, costs_of(title, spec, size if key == "tokens" else length)))
    if json:
        echo_json([{"model": name, key: size, **_fields(costs)} for name, size, costs in rows])
    else:
        _print([costs for _, _, costs in rows], key, [f"{size:,}" for _, size, _ in rows])
    if out is not None:
        write_file(out, _drawing(rows, key, out.suffix).encode())
        echo(f"wrote {out}", err=True)


def _split(names: list[str]) -> tuple[list[str], list[str]]:
    return [name for name in names if "=" not in name], [name for name in names if "=" in name]


def _fields(costs: ModelCosts) -> dict[str, object]:
    from dataclasses import asdict

    return {key: value for key, value in asdict(costs).items() if key != "name"}


def _print(rows: list[ModelCosts], key: str = "", sizes: list[str] | None = None) -> None:
    """Print a table, with a column of the sizes of `key` if there are some."""
    from rich.table import Table

    from ...look.svg import readable

    table = Table(box=None, pad_edge=False)
    table.add_column("model")
    for header in (*([key] if sizes else []), "parameters", "active", "FLOPs/token", "weights", "cache of a row"):
        table.add_column(header, justify="right")
    for i, row in enumerate(rows):
        # Papers write billions of parameters as B.
        parameters, active = (readable(n).replace("G", "B") for n in (row.parameters, row.active))
        counts = (parameters, active, readable(row.forward), f"{readable(row.weights)}B")
        cache = "" if row.cache is None else f"{readable(row.cache)}B"
        table.add_row(row.name, *([sizes[i]] if sizes else []), *counts, cache)
    console().print(table)
    if any(row.two_stacks for row in rows):
        echo("FLOPs/token of an encoder–decoder are averages over as many tokens of the source as of the target.")


def _drawing(rows: list[tuple[str, int, ModelCosts]], key: str, suffix: str) -> str:
    """Draw charts of FLOPs, parameters and caches, stacked vertically, as SVG or HTML."""
    from ...look.chart import Series, line_chart

    quantities = {
        "FLOPs of a token, forward": "forward",
        "parameters": "parameters",
        "bytes of the cache of a row in bf16": "cache",
    }
    names = list(dict.fromkeys(name for name, _, _ in rows))
    charts = []
    for title, attribute in quantities.items():
        values = [(name, size, getattr(costs, attribute)) for name, size, costs in rows]
        changing = len({value for _, _, value in values if value is not None}) > len(names)
        lines = [
            Series(name, [(size, value) for model, size, value in values if model == name and value], dots=True)
            for name in names
        ]
        chart = line_chart(title, lines, x_label=key, log=True, log_x=True)
        if chart and (changing or attribute != "parameters"):
            charts.append(chart)
    return charts_as(charts, suffix, "Costs")


def charts_as(charts: Sequence[Markup], suffix: str, title: str) -> str:
    """Stack charts vertically, in an SVG file or an HTML page."""
    from ...look.standalone_svg import figure

    if suffix == ".svg":
        return figure(*charts)
    pictures = "\n".join(figure(chart) for chart in charts)
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    style = "<style>:root{color-scheme:light dark}body{margin:12px}svg{max-width:100%;height:auto}</style>"
    head = f"<head>{head}<title>{title}</title>{style}</head>"
    return f'<!doctype html><html lang="en">{head}<body>\n{pictures}\n</body></html>'
