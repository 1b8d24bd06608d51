"""`qkv cost`: parameters, FLOPs, memory and time of training, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .say import console, echo

if TYPE_CHECKING:
    from ..experiments.costs import Costs


def cost(
    name: Annotated[
        str, typer.Argument(metavar="RECIPE-OR-PRESET", help="A recipe, a preset, a recipe's file or a run directory.")
    ],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, such as `batching.tokens=512`.")
    ] = None,
    rows: Annotated[int | None, typer.Option(metavar="N", help="Rows of a batch, in place of the recipe's.")] = None,
    length: Annotated[int | None, typer.Option(metavar="N", help="Tokens of a row, on each side of a pair.")] = None,
    data: Annotated[
        bool,
        typer.Option("--data/--no-data", help="Whether to read a recipe's data, for their vocabulary and lengths."),
    ] = True,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where it is to be trained.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print JSON, sizes in bytes.")] = False,
) -> None:
    """Predict what training costs: parameters, FLOPs, memory of the largest batch, and an estimate of the time.

    A recipe's tokenizer is trained as `qkv train` would, so that the vocabulary is the real one; where the data can't be
    read, it counts as full, and the output says so. A preset counts as trained on batches of 8 × 512 tokens by AdamW.
    """
    from .. import families
    from ..core.device import choose
    from ..experiments import costs
    from ..recipes.recipe import packaged
    from .show import load_preset, load_recipe

    where, changes = choose(device), list(settings or ())
    if name in families.presets() and name not in packaged():
        found = costs.of_preset(name, load_preset(name, changes), where, rows, length)
    else:
        found = costs.of_recipe(load_recipe(name, changes), where, rows, length, data)
    if json:
        from json import dumps

        echo(dumps(found.to_dict(), indent=2))
        return
    _show(found)


def _show(costs: Costs) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for header in (costs.name, "parameters", "forward FLOPs a token"):
        table.add_column(header, justify="left" if header == costs.name else "right")
    for part in (part for part in costs.parts if part.parameters or part.flops):
        table.add_row(part.name, f"{part.parameters:,}", f"{part.flops / costs.shape.tokens:,.0f}")
    table.add_section()
    forward = sum(part.flops for part in costs.parts) / costs.shape.tokens
    table.add_row("in all", f"{costs.parameters:,}", f"{forward:,.0f}")
    out = console()
    out.print(table)
    for line in _lines(costs):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(costs: Costs) -> list[str]:
    from ..training.logging.progress_bar import span

    shape, memory = costs.shape, costs.memory
    said = [f"\nCounted {costs.basis}."] if costs.basis else []
    said += [f"\nA training step of {shape.tokens:,} tokens ({shape}), in {costs.precision} on {costs.device}:"]
    if memory is None:
        said.append("  memory    can't be known before the run: a part of the model decides by its numbers")
    else:
        free = f", {_size(costs.free)} free here" if costs.free is not None else ""
        kept = {"weights": memory.weights, "optimizer": memory.optimizer, "gradients": memory.gradients}
        listed = ", ".join(f"{name} {_size(size)}" for name, size in kept.items())
        said.append(
            f"  memory    {_size(memory.peak)} at most{free}: {listed}, activations {_size(memory.activations)}"
        )
    said.append(f"  compute   {costs.flops:.3g} FLOPs; {costs.peak / 1e9:,.0f} GFLOP/s at best here")
    said.append(f"  time      about {costs.seconds:.2g} s, {costs.tokens_per_second:,.0f} tokens/s: an estimate")
    if costs.cache is not None:
        (first, least), *others = costs.cache.items()
        sizes = ", ".join(f"{_size(size)} in {name}" for name, size in costs.cache.items())
        if others and all(size == least for _, size in others):
            sizes = f"{_size(least)} in {first}; {_unquantized([name for name, _ in others])}"
        said.append(f"  decoding  a row of {shape.length:,} tokens is a cache of {sizes}")
    if costs.batches is not None:
        run = span(costs.seconds * costs.batches)
        said.append(f"  the run   about {run} for {costs.batches:,} batches, evaluations apart")
    return said


def _unquantized(names: list[str]) -> str:
    """Why quantized caches are as large as the plain one."""
    from ..kv_cache.kinds import QuantizedCache

    usual = QuantizedCache()
    return f"{' and '.join(names)} quantize rows from {usual.residual + usual.group} tokens on"


def _size(size: int) -> str:
    """Bytes with at least two digits: MiB from 10 on, KiB below."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**10:,.0f} KiB"
