"""`qkv prune`: remove heads, neurons and layers from a run, and factorize its matrices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...cli.options import Device, Json
from ...cli.say import echo

if TYPE_CHECKING:
    from ..prune import PruningResult


def prune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The directory of the smaller run.")],
    heads: Annotated[
        list[str] | None,
        typer.Option(
            "--heads",
            metavar="SHARE | LAYER:HEADS",
            help="Remove a share of all heads, the least important ones (`30%`), or heads by name (`decoder.0:1,3`, "
            "`decoder.2.cross:0`); names are repeatable.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            metavar="GROWTH",
            help="Remove the least important heads until the loss on the validation split has grown by a share (`5%`).",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="LAYER:HEADS", help="Remove all other heads of a layer; repeatable."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="gradient|ablation|gates",
            help="How the importance of heads is measured for a share or --until.  [default: gradient]",
        ),
    ] = None,
    neurons: Annotated[
        str | None,
        typer.Option("--neurons", metavar="SHARE", help="Remove a share of the neurons of each feed-forward layer."),
    ] = None,
    layers: Annotated[int, typer.Option("--layers", metavar="N", help="Remove N layers.")] = 0,
    rank: Annotated[
        str | None,
        typer.Option(
            "--rank",
            metavar="RANK | SHARE",
            help="Replace the matrices W of attention and feed-forward layers by products U V of this rank (`16`), or such "
            "that each keeps a share of its parameters (`50%`).",
        ),
    ] = None,
    finetune: Annotated[
        str | None,
        typer.Option(
            "--finetune", metavar="TIME|STEPS", help="Train the smaller model for a time (`5m`) or a number of steps."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the recipe for the fine-tuning; repeatable."),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", metavar="N", min=1, help="Examples from which importance is measured.")
    ] = 512,
    curve: Annotated[
        bool,
        typer.Option(
            "--curve/--no-curve", help="Evaluate without 0 to 90 % of the heads, and compare the outputs of heads."
        ),
    ] = True,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Remove attention heads, neurons or layers from a run, or factorize its matrices, and write the smaller run.

    Matrices become smaller, and the remaining weights are unchanged; `--rank` replaces matrices by products of two. Which
    heads matter least is measured on the run's own data. The smaller run loads, generates and evaluates like any other;
    `pruning.html` shows the loss of quality.
    """
    from rich.console import Console

    from ..prune import prune as prune_run

    result = prune_run(
        run,
        out,
        heads=_heads(heads or ()),
        until=_growth(until) if until else 0.0,
        keep=_named("--keep", keep) if keep else None,
        by=by,  # type: ignore[arg-type]  # checked there
        neurons=_share("--neurons", neurons) if neurons else 0.0,
        layers=layers,
        rank=_rank(rank) if rank else None,
        finetune=finetune,
        examples=examples,
        curve=curve,
        changes=settings or (),
        overwrite=overwrite,
        device=device,
        console=Console(quiet=json),
    )
    if json:
        echo(result.to_json())
        return
    if result.until is not None:
        echo(_stopped(result))
    if (elbow := next(iter(result.elbows.items()), None)) is not None:
        echo(f"elbow: {elbow[1]:.0%} of the heads, by {elbow[0]}")
    before, after = result.parameters
    for layer, removed in result.heads.items():
        echo(f"{layer}: removed heads {', '.join(map(str, removed))}")
    for layer, count in result.neurons.items():
        echo(f"{layer}: removed {count:,} neurons")
    for stack, removed in result.layers.items():
        echo(f"{stack}: removed layers {', '.join(map(str, removed))}")
    for layer, ranks in result.ranks_by_layer().items():
        echo(f"{layer}: ranks {', '.join(f'{name} {rank}' for name, rank in ranks.items())}")
    echo(f"parameters: {before:,} → {after:,} ({after / before - 1:+.1%})")
    faster = result.speeds["after"] / result.speeds["before"]
    echo(f"speed: {result.speeds['before']:,.0f} → {result.speeds['after']:,.0f} per second ({faster:.2f}×)")
    for name in result.metrics["before"]:
        values = [f"{stage} {metrics[name]:.4g}" for stage, metrics in result.metrics.items() if name in metrics]
        echo(f"{name}: {', '.join(values)}")
    echo(f"{result.folder}: the smaller run; {result.folder / 'pruning.html'}: what it cost")


def _heads(given: list[str] | tuple[()]) -> float | dict[str, list[int]]:
    """A share, or heads by layer."""
    if not given:
        return 0.0
    if len(given) == 1 and ":" not in given[0]:
        return _share("--heads", given[0])
    return _named("--heads", given)


def _share(option: str, text: str, allowed: str = "a share such as 30% or 0.3") -> float:
    """A share such as `30%` or `0.3`; the error for other texts names `allowed`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f"{option} is {allowed}, not {text!r}") from None
    if not 0 <= value < 1:
        raise ValueError(f"{option} is a share from 0% to below 100%, not {text}")
    return value


def _growth(text: str) -> float:
    """A growth such as `5%` or `0.05`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"--until is a growth of the loss above 0, such as 5% or 0.05, not {text!r}")
    return value


def _stopped(result: PruningResult) -> str:
    """How far the loss has grown, and with which head it would have grown too far."""
    (_, whole), (tried, last) = result.losses[0], result.losses[-1]
    kept = [(count, loss) for count, loss in result.losses if count <= sum(map(len, result.heads.values()))]
    count, loss = kept[-1]
    said = f"loss: {whole:.4g} → {loss:.4g} without {count} heads ({loss / whole - 1:+.1%})"
    return said if tried == count else f"{said}, {last:.4g} without {tried} ({last / whole - 1:+.1%})"


def _rank(text: str) -> int | float:
    """A rank, or a share as `50%` or `0.5`."""
    return int(text) if text.isdecimal() else _share("--rank", text, "a rank such as 16, or a share such as 50%")


def _named(option: str, given: list[str]) -> dict[str, list[int]]:
    """Heads by layer, from texts such as `decoder.0:1,3`."""
    heads: dict[str, list[int]] = {}
    for text in given:
        layer, colon, numbers = text.partition(":")
        parts = numbers.split(",")
        if not colon or not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{option} names heads as LAYER:HEADS, such as decoder.0:1,3, not {text!r}")
        heads.setdefault(layer, []).extend(int(part) for part in parts)
    return heads
