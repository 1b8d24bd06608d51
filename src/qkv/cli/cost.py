"""`qkv cost`: predict the parameters, FLOPs, memory and time of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Device, Json, RecipeOrPreset, Settings
from .say import console, echo_json

if TYPE_CHECKING:
    from ..experiments.costs import Costs


def cost(
    name: RecipeOrPreset,
    settings: Settings = None,
    rows: Annotated[int | None, typer.Option(metavar="N", help="Rows of a batch. [default: the recipe's]")] = None,
    length: Annotated[int | None, typer.Option(metavar="N", help="Tokens per row, on each side of a pair.")] = None,
    data: Annotated[
        bool,
        typer.Option("--data/--no-data", help="Whether to read the recipe's data for its vocabulary and lengths."),
    ] = True,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Predict what training costs: parameters, FLOPs, memory of the largest batch, and an estimate of the time.

    The recipe's tokenizer is trained as by `qkv train`, to count the real vocabulary. If the data can't be read, the
    largest possible vocabulary is counted, and the output says so. For a preset, training uses AdamW and batches of 8 × 512
    tokens. Sizes in JSON are bytes.
    """
    from .. import families
    from ..core.device import choose
    from ..experiments import costs
    from ..recipes.recipe import packaged
    from .show import load_preset, load_recipe

    target, changes = choose(device), list(settings or ())
    if name in families.presets() and name not in packaged():
        prediction = costs.of_preset(name, load_preset(name, changes), target, rows, length)
    else:
        prediction = costs.of_recipe(load_recipe(name, changes), target, rows, length, data)
    if json:
        echo_json(prediction.to_dict())
    else:
        _show(prediction)


def _show(costs: Costs) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for header in (costs.name, "parameters", "forward FLOPs per token"):
        table.add_column(header, justify="left" if header == costs.name else "right")
    for part in (part for part in costs.parts if part.parameters or part.flops):
        table.add_row(part.name, f"{part.parameters:,}", f"{part.flops / costs.shape.tokens:,.0f}")
    table.add_section()
    forward = sum(part.flops for part in costs.parts) / costs.shape.tokens
    table.add_row("total", f"{costs.parameters:,}", f"{forward:,.0f}")
    out = console()
    out.print(table)
    for line in _lines(costs):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(costs: Costs) -> list[str]:
    from ..training.logging.progress_bar import span

    shape, memory = costs.shape, costs.memory
    lines = [f"\nCounted {costs.basis}."] if costs.basis else []
    lines += [f"\nA training step of {shape.tokens:,} tokens ({shape}), in {costs.precision} on {costs.device}:"]
    if memory is None:
        lines.append("  memory    can't be predicted: control flow in the model depends on the values of tensors")
    else:
        free = f", {_size(costs.free)} free here" if costs.free is not None else ""
        sizes = {
            "weights": memory.weights,
            "optimizer": memory.optimizer,
            "gradients": memory.gradients,
            "activations": memory.activations,
        }
        parts = ", ".join(f"{name} {_size(size)}" for name, size in sizes.items())
        lines.append(f"  memory    {_size(memory.peak)} at most{free}: {parts}")
    lines.append(f"  compute   {costs.flops:.3g} FLOPs; {costs.peak / 1e9:,.0f} GFLOP/s at best here")
    seconds = f"{costs.seconds:.2g}" if costs.seconds < 100 else f"{costs.seconds:,.0f}"
    lines.append(f"  time      about {seconds} s, {costs.tokens_per_second:,.0f} tokens/s: an estimate")
    if costs.cache is not None:
        (first, least), *others = costs.cache.items()
        caches = ", ".join(f"{_size(size)} in {name}" for name, size in costs.cache.items())
        if others and all(size == least for _, size in others):
            caches = f"{_size(least)} in {first}; {_unquantized([name for name, _ in others])}"
        lines.append(f"  decoding  the cache of a row of {shape.length:,} tokens takes {caches}")
    if costs.batches is not None:
        run = span(costs.seconds * costs.batches)
        lines.append(f"  the run   about {run} for {costs.batches:,} batches, without evaluations")
    return lines


def _unquantized(names: list[str]) -> str:
    """Why quantized caches are as large as the full one."""
    from ..kv_cache.kinds import QuantizedCache

    default = QuantizedCache()
    return f"{' and '.join(names)} quantize rows from {default.residual + default.group} tokens on"


def _size(size: int) -> str:
    """Format bytes with at least two digits: GiB, MiB from 10 MiB on, or KiB."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**10:,.0f} KiB"
