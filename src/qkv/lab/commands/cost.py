"""`qkv cost`: predict the parameters, FLOPs, memory and time of training."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...cli.options import Device, Json, RecipeOrPreset, Settings
from ...cli.say import console, echo, echo_json
from .cost_plan import described
from .cost_roofline import show_rooflines

if TYPE_CHECKING:
    import torch

    from ...nn.cost.accelerators import Accelerator
    from ...nn.cost.roofline import AttentionKind, Roofline
    from ...nn.cost.whole_run import TrainingRun
    from ..costs.generation import GenerationCosts
    from ..costs.measured_time import MeasuredTime
    from ..costs.training import TrainingCosts


def cost(
    name: RecipeOrPreset,
    settings: Settings = None,
    rows: Annotated[int | None, typer.Option(metavar="N", help="Rows of a batch. [default: the recipe's]")] = None,
    length: Annotated[int | None, typer.Option(metavar="N", help="Tokens per row, on each side of a pair.")] = None,
    data: Annotated[
        bool,
        typer.Option("--data/--no-data", help="Whether to read the recipe's data for its vocabulary and lengths."),
    ] = True,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|JSON",
            help="The device for generation and for the whole run: `h100`, `h200`, `b200`, `a100`, `4090`, `m4`, `p100`, "
            "`this`, or described in JSON or a .json file. [default: this, measured]",
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens before the one that is generated. [default: a row's length]")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens of a whole training, such as `300e9` or `1B`.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Steps of a whole training, of one batch each.")
    ] = None,
    flops: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="FLOPs of a whole training by device hours × peak, as papers count them, such as `2.3e19`.",
        ),
    ] = None,
    days: Annotated[
        float | None, typer.Option(metavar="N", help="Days of a whole training: how many tokens and FLOPs they allow.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Devices of the whole training. [default: 1]")
    ] = None,
    utilization: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of peak speed that the whole training reaches (MFU). [default: 0.4]"),
    ] = None,
    roofline: Annotated[
        bool,
        typer.Option("--roofline", help="Show what limits a training step: bytes moved and time of each component."),
    ] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Time the model with one and three layers here, for predictions within 25 %."),
    ] = False,
    precision: Annotated[
        Literal["fp32", "bf16"] | None,
        typer.Option(
            help="Precision of generation, of the whole run and of --roofline. [default: bf16; on this machine, what it "
            "trains in]",
            show_default=False,
        ),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Predict what training costs: parameters, FLOPs, memory of the largest batch, and an estimate of the time; what a
    generated token costs; and with `--tokens`, `--steps`, `--flops` or `--days`, a whole training: FLOPs, days, kWh
    and dollars.

    With `--sweep`, costs by size; with several names, models side by side; `fit` shows what fits into memory, `layers`
    compares kinds of layers, and `--plan`, `--simulate` and `--published` predict many devices. Each has its own `--help`,
    such as `qkv cost fit --help` or `qkv cost sweep --help`.

    The recipe's tokenizer is trained as by `qkv train`, to count the real vocabulary. If the data can't be read, the
    largest possible vocabulary is counted, and the output says so. For a preset, training uses AdamW and batches of 8 × 512
    tokens. Sizes in JSON are bytes.
    """
    from ...cli.show import bare_model, load_recipe, model_of, preset_of
    from ...core.device import choose
    from ...nn.cost.accelerators import accelerator
    from ...nn.cost.whole_run import tokens_within, whole_run
    from ..costs import training as costs
    from ..costs.generation import of_generation

    target, changes = choose(device), list(settings or ())
    if preset_of(name) is None and bare_model(name) is None:
        prediction = costs.of_recipe(load_recipe(name, changes), target, rows, length, data)
    else:
        prediction = costs.of_preset(*model_of(name, changes)[:2], target, rows, length)
    where = accelerator(described(hardware, "--hardware") or "this", target)
    kind = precision or _precision(prediction, where)
    generation = of_generation(
        prediction.spec, context or prediction.shape.length, prediction.shape.source, where, kind
    )
    if context is not None and generation is None:
        raise ValueError(
            f"{prediction.name} does not generate text token by token, so --context has no effect; leave it out"
        )
    share = 0.4 if utilization is None else utilization
    budget = _budget(tokens, steps, prediction)
    seconds = _seconds(flops, days, budget is not None, where.peak(kind) * (devices or 1))
    if seconds is not None:
        budget = tokens_within(seconds, prediction.flops_per_token, where, kind, share, devices or 1)
    if budget is None and (devices, utilization) != (None, None):
        given = "--devices" if devices is not None else "--utilization"
        raise ValueError(
            f"{given} is for a whole training; give --tokens, --steps, --flops or --days as well, or leave it out"
        )
    run = None if budget is None else whole_run(prediction.flops_per_token, budget, where, kind, share, devices or 1)
    rooflines = _rooflines(prediction, where, kind) if roofline else []
    measured = _measured(prediction, target) if measure else None
    if measured is not None:
        prediction = replace(prediction, seconds=measured.step)
    if json:
        more = {"generation": generation, "whole_run": run, "measured": measured}
        bound = {"roofline": [one.to_dict() for one in rooflines]} if roofline else {}
        told = {name: None if part is None else asdict(part) for name, part in more.items()}
        echo_json(prediction.to_dict() | told | bound)
        return
    _show(prediction, measured)
    if rooflines:
        show_rooflines(rooflines)
    elif hardware is not None:
        _show_elsewhere(prediction, where, kind)
    if generation is not None:
        _show_generation(generation)
    if run is not None:
        for line in _run_lines(run, where, share, kind):
            console().print(line, highlight=False, markup=False, soft_wrap=True)


def _precision(costs: TrainingCosts, hardware: Accelerator) -> str:
    """Return bf16, or fp32 if the hardware is this machine and it trains in fp32."""
    from ...nn.cost.accelerators import THIS

    return "fp32" if hardware.name == THIS and costs.precision == "fp32" else "bf16"


def _budget(tokens: str | None, steps: int | None, costs: TrainingCosts) -> float | None:
    """Return the tokens of a whole training, or None without --tokens and --steps. Raises ValueError if both are given."""
    if tokens is not None and steps is not None:
        raise ValueError("a whole training is given by --tokens or by --steps, not both; leave out one of them")
    if steps is not None:
        return float(steps * costs.shape.tokens)
    return None if tokens is None else _number(tokens)


def _seconds(flops: str | None, days: float | None, budgeted: bool, peak: float) -> float | None:
    """Return the time of a whole training that is given by --flops or --days, on devices with a peak in FLOP/s together.

    Raises ValueError if more than one option gives the training.
    """
    if (flops is not None) + (days is not None) + budgeted > 1:
        raise ValueError(
            "a whole training is given by one of --tokens, --steps, --flops and --days; leave out the others"
        )
    for option, number in (("--flops", None if flops is None else _number(flops, "--flops")), ("--days", days)):
        if number is not None and not 0 < number < float("inf"):
            raise ValueError(f"{option} is a number above 0, not {number:g}")
        if number is not None:
            return number * 86_400 if option == "--days" else number / peak
    return None


def _rooflines(costs: TrainingCosts, hardware: Accelerator, precision: str) -> list[Roofline]:
    """Return the rooflines of a training step, for a Transformer both with tiled and with materialized attention."""
    from ...nn.cost.recurrent.roofline import roofline as roofline_of_recurrent
    from ...nn.cost.roofline import roofline
    from ...nn.models.recurrent.model import Recurrent
    from ...nn.models.transformer import Transformer

    if isinstance(costs.spec, Recurrent):
        return [roofline_of_recurrent(costs.spec, costs.shape, hardware, precision)]
    if not isinstance(costs.spec, Transformer):
        raise ValueError(
            f"--roofline works for Transformers and recurrent models, and {costs.name} is neither; leave it out"
        )
    kinds: tuple[AttentionKind, ...] = ("tiled", "materialized")
    return [roofline(costs.spec, costs.shape, hardware, precision, kind) for kind in kinds]


def _measured(costs: TrainingCosts, device: torch.device) -> MeasuredTime:
    from ..costs.measured_time import measured_time

    assert costs.spec is not None
    echo("timing the model with one and three layers here, for ten to twenty seconds", err=True)
    return measured_time(costs.spec, costs.shape, costs.training, device)


def _show(costs: TrainingCosts, measured: MeasuredTime | None) -> None:
    from rich.table import Table

    from ...nn.cost.flops import tokens_of
    from ...nn.cost.formulas import Formulas, formulas, legend
    from ...nn.models.transformer import Transformer

    spec = costs.spec
    known = {} if spec is None else formulas(spec)
    two = isinstance(spec, Transformer) and spec.is_encoder_decoder
    table = Table(box=None, pad_edge=False)
    table.add_column(costs.name, no_wrap=True)
    for header in ("parameters", "FLOPs a token"):
        table.add_column(header, justify="right", no_wrap=True)
        table.add_column("", style="dim")
    for part in (part for part in costs.parts if part.parameters or part.flops):
        own = known.get(part.name, Formulas())
        tokens = costs.shape.tokens if spec is None else tokens_of(part.name, spec, costs.shape)
        flops = f"{part.flops / tokens:,.0f}"
        table.add_row(part.name, f"{part.parameters:,}", own.parameters, flops, own.flops)
    table.add_section()
    forward = sum(part.flops for part in costs.parts) / costs.shape.tokens
    table.add_row("total", f"{costs.parameters:,}", "", f"{forward:,.0f}", "on average" if two else "")
    if costs.active != costs.parameters:
        table.add_row("used by each token", f"{costs.active:,}", "", "", "")
    out = console()
    out.print(table)
    notes = (
        [f"{'; '.join(legend(spec, costs.shape))}; without biases and norms"] if isinstance(spec, Transformer) else []
    )
    notes += [
        "A token is one of the source in the encoder, one of the target elsewhere; `other`, total: averages."
    ] * two
    for note in notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True, style="dim")
    for line in _lines(costs, measured):
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _show_elsewhere(costs: TrainingCosts, hardware: Accelerator, precision: str) -> None:
    """Print the minimum time of the training step on the hardware that --hardware names."""
    from ...nn.cost.accelerators import THIS
    from ...nn.models.recurrent.model import Recurrent
    from ...nn.models.transformer import Transformer

    if hardware.name != THIS and isinstance(costs.spec, Transformer | Recurrent):
        seconds = _rooflines(costs, hardware, precision)[0].seconds
        line = f"  on {hardware.name:<6} at least {_time(seconds)} in {precision}; --roofline shows what binds it"
        console().print(line, highlight=False, markup=False, soft_wrap=True)


def _show_generation(costs: GenerationCosts) -> None:
    from rich.table import Table

    source = f" and a source of {costs.source:,}" if costs.source else ""
    out = console()
    device = f"{costs.hardware} ({costs.precision})"
    out.print(
        f"\nGenerating one text, after {costs.context:,} tokens{source}, on {device}, at the least:",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for header in ("FLOPs", "bytes read", "cache", "time", "bound by"):
        table.add_column(header, justify="right")
    for row in costs.rows:
        cache = _size(row.cache) if row.cache else "–"
        table.add_row(row.name, f"{row.flops:.3g}", _size(row.bytes), cache, _time(row.seconds), row.bound)
    out.print(table, highlight=False)
    if len(cached := [row.cache for row in costs.rows if row.cache]) > 1 and len(set(cached)) == 1:
        from ...nn.kv_cache.kinds import QuantizedCache

        default = QuantizedCache()
        out.print(f"int8 and int4 caches quantize rows from {default.residual + default.group} tokens on")


def _run_lines(run: TrainingRun, hardware: Accelerator, utilization: float, precision: str) -> list[str]:
    devices = f"{run.devices:,} × {hardware.name}" if run.devices > 1 else hardware.name
    length = f"{run.days:,.1f} days" if run.days >= 1 else f"{run.seconds / 3600:,.1f} hours"
    length = length if run.seconds >= 360 else _time(run.seconds)
    lines = [
        f"\nA training of {run.tokens:,.0f} tokens on {devices}, at {utilization:.0%} of its peak in {precision}:",
        f"  compute   {run.flops:.3g} FLOPs of the model; {run.hardware_flops:.3g} by hours × peak",
        f"  time      {length}",
    ]
    lines += [] if run.kwh is None else [f"  energy    {_amount(run.kwh)} kWh"]
    return lines + ([] if run.price is None else [f"  price     {_amount(run.price)} dollars"])


def _amount(number: float) -> str:
    if 0 < number < 0.001:
        return "less than 0.001"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _time(seconds: float) -> str:
    from ...runs.planning import sentences

    return sentences.seconds(seconds)


def _number(text: str, option: str = "--tokens") -> float:
    """A number such as 300e9, 1.5B, 20M or 100k."""
    factors = {"k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
    try:
        return float(text.rstrip("kMBGT")) * factors.get(text[-1:], 1.0)
    except ValueError:
        raise ValueError(f"{option} is a number such as 300e9 or 1.5B, not {text!r}") from None


def _lines(costs: TrainingCosts, measured: MeasuredTime | None) -> list[str]:
    from ...training.logging.progress_bar import span

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
    basis = "an estimate; --measure is closer" if measured is None else "from one and three layers, timed here"
    lines.append(f"  time      about {seconds} s, {costs.tokens_per_second:,.0f} tokens/s: {basis}")
    if measured is not None and measured.generation is not None:
        text = f"{measured.new} tokens after {measured.prompt:,} take about {_time(measured.generation)} in fp32"
        lines.append(f"  generate  {text}: from one and three layers too")
    if costs.batches is not None:
        run = span(costs.seconds * costs.batches)
        total = f"{costs.flops * costs.batches:.3g} FLOPs"
        lines.append(f"  the run   about {run} for {costs.batches:,} batches, without evaluations; {total}")
    return lines


def _size(size: int) -> str:
    """Format bytes with at least two digits: GiB, MiB from 10 MiB on, or KiB."""
    if size >= 2**30:
        return f"{size / 2**30:.2f} GiB"
    return f"{size / 2**20:.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**10:,.0f} KiB"
