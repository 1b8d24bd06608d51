"""`qkv cost NAME --plan`, `--simulate` and `qkv cost --published`: layouts of training on many GPUs, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...cli.options import Json, Overwrite, RecipeOrPreset, Settings
from ...cli.say import echo, echo_json

if TYPE_CHECKING:
    from ...nn.cost.plan.simulate import FastestLayout
    from ...runs.planning.many_ranks import RankQuestion

Hardware = Annotated[
    str,
    typer.Option(
        metavar="NAME|JSON",
        help="The GPUs: `h100`, `h200`, `b200`, `a100`, `4090`, `m4`, `p100`, `this`, or described in JSON or a .json file.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|JSON",
        help="What joins them: `nvlink4-ndr`, `nvlink3-hdr`, `nvlink4-ethernet`, `pcie4-ethernet`, `loopback` …, or "
        "described in JSON or a .json file. [default: the hardware's usual one]",
    ),
]
Length = Annotated[int | None, typer.Option(metavar="N", help="Tokens per row.", min=1)]
Batch = Annotated[
    int | None,
    typer.Option(metavar="ROWS", help="Rows of a step, on all GPUs. [default: the recipe's; about 4M tokens]", min=1),
]
Compile = Annotated[bool, typer.Option("--compile", help="With `torch.compile`, which fuses element-wise operations.")]


def plan(
    name: RecipeOrPreset,
    settings: Settings = None,
    asked: Annotated[bool, typer.Option("--plan", help="Choose a layout for many GPUs.")] = True,
    gpus: Annotated[int, typer.Option(metavar="N", help="Number of GPUs.", min=1)] = 8,
    hardware: Hardware = "h100",
    network: NetworkOption = None,
    length: Length = None,
    batch: Batch = None,
    layout: Annotated[
        str | None, typer.Option(metavar="AXES", help="Predict this layout only, such as `data=8,tensor=8,zero=1`.")
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Number of layouts to show.", min=1)] = 5,
    compile: Compile = False,
    imbalance: Annotated[
        float, typer.Option(metavar="X", help="Tokens of the fullest expert rank, relative to the mean.", min=1)
    ] = 1.25,
    json: Json = False,
) -> None:
    """Choose how to divide training over many GPUs: replicas, shards and stage of ZeRO, tensor, pipeline, context and expert
    parallelism, microbatches and recomputation.

    Every layout that divides the model and the batch is tried. The layouts that fit into memory are listed, the fastest
    first, with the memory of the fullest GPU and the time of a step by part, as far as qkv can run them
    (`docs/scale.md`).
    """
    from dataclasses import asdict

    from ...nn.cost.plan.search import nearest, search
    from ...nn.cost.plan.search import plan as predict
    from .cost_plan_show import show_plans, why

    question = _question(name, settings, hardware, network, gpus, length, batch, layout, compile, imbalance)
    model, where = question.model, question.machine
    if question.layout is not None:
        plans = [predict(model, question.layout, where)]
        if not plans[0].fits(where):
            raise nearest(model, plans[0], where, question.batch)
    else:
        plans = search(model, where, gpus, question.batch)
    shown = plans[:top]
    if json:
        found = [
            {
                "layout": asdict(one.layout),
                "step": one.step.to_dict(),
                "memory": one.memory.to_dict(),
                "moments": dict(one.moments),
            }
            for one in shown
        ]
        asked_for = {"model": name, "gpus": gpus, "hardware": where.device.name, "network": where.network.name}
        echo_json(
            {**asked_for, "batch": question.batch, "tokens": model.tokens, "why": why(plans, question), "plans": found}
        )
        return
    show_plans(plans, question, top)


def simulate(
    name: RecipeOrPreset,
    settings: Settings = None,
    asked: Annotated[bool, typer.Option("--simulate", help="Sweep over numbers of GPUs.")] = True,
    gpus: Annotated[str, typer.Option(metavar="A..B", help="Numbers of GPUs, doubled from A to B.")] = "8..4096",
    hardware: Hardware = "h100",
    network: NetworkOption = None,
    length: Length = None,
    batch: Annotated[
        int | None,
        typer.Option(metavar="ROWS", help="Rows of a step on the fewest GPUs. [default: two of each GPU]", min=1),
    ] = None,
    compile: Compile = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw into an .svg or .html file.")] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Simulate training on more and more GPUs: the fastest layout, time of a step and MFU for each number.

    In weak scaling the batch grows with the GPUs; in strong scaling it is the middle one for all.
    """
    from ...core.atomic import write_file
    from ...io.directories.layout import claim_page
    from ...nn.cost.plan.simulate import simulate as run
    from ...nn.cost.plan.simulate import sizes
    from .cost_plan_show import drawn, progress, show_points

    first, last = _range(gpus)
    if out is not None and out.suffix not in (".svg", ".html"):
        raise ValueError(f"--out draws an .svg or .html file, not {out.name}")
    claim_page(out, overwrite)
    numbers = sizes(first, last)
    question = _question(name, settings, hardware, network, first, length, batch or 2 * first, None, compile)
    with progress(2 * len(numbers)) as advance:
        points: list[FastestLayout] = run(question.model, question.machine, numbers, question.batch, advance)
    if json:
        echo_json([point.to_dict() for point in points])
    else:
        show_points(points, question)
    if out is not None:
        write_file(out, drawn(points, question, out.suffix).encode())
        echo(f"wrote {out}", err=True)


def published(
    asked: Annotated[bool, typer.Option("--published", help="Compare with published runs.")] = True,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables of docs/scale.md.")] = False,
    json: Json = False,
) -> None:
    """Compare the planner's model with published training runs: throughput of a GPU, predicted and published, and the error.

    Rows with a star were used to calibrate it; all others are predictions.
    """
    from dataclasses import asdict

    from ...nn.cost.plan.published import compare, published_runs
    from ...nn.cost.plan.published import markdown as tables
    from ...runs.planning.published_models import spec_of
    from .cost_plan_show import progress, show_published

    with progress(len(published_runs())) as advance:
        rows = []
        for run in published_runs():
            rows.append(compare(run, spec_of))
            advance(None)
    if json:
        echo_json(
            [
                {
                    "run": row.published.name,
                    "published": row.published.value,
                    "predicted": row.predicted,
                    "unit": row.published.unit,
                    "error": row.error,
                    "calibrated": row.published.calibrated,
                    "source": row.published.source,
                    "assumed": row.published.assumed,
                    "layout": asdict(row.published.layout),
                    "step": row.step.to_dict(),
                    "memory": row.memory.to_dict(),
                    "published_gib": row.published.memory_gib,
                }
                for row in rows
            ]
        )
        return
    if markdown:
        echo(tables(rows))
        return
    show_published(rows)


def _question(
    name: str,
    settings: list[str] | None,
    hardware: str,
    network: str | None,
    gpus: int,
    length: int | None,
    batch: int | None,
    layout: str | None,
    compile: bool,
    imbalance: float = 1.25,
) -> RankQuestion:
    from dataclasses import replace

    from ...cli.show import model_of
    from ...nn.cost.accelerators import accelerator
    from ...runs.planning.many_ranks import machine, of_preset, of_recipe

    device, joined, changes = (
        accelerator(described(hardware, "--hardware")),
        described(network, "--network"),
        list(settings or ()),
    )
    title, spec, recipe = model_of(name, changes)
    precision = "auto" if recipe is None else recipe.training.precision
    where = machine(device, joined, precision, compile or (recipe is not None and recipe.training.compile is True))
    where = replace(where, how=replace(where.how, imbalance=imbalance))
    if recipe is None:
        return of_preset(title, spec, where, gpus, length, batch, layout)
    return of_recipe(recipe, where, gpus, length, batch, layout)


def described(text: str | None, option: str) -> Any:
    """Return a name, or a description read from JSON or from a .json file. Raises ValueError if it is not valid JSON."""
    import json

    if text is not None and text.endswith(".json"):
        if not Path(text).is_file():
            raise ValueError(f"{option}: there is no file {text}; give a name, a JSON object, or a .json file with one")
        text = Path(text).read_text(encoding="utf-8")
    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError(f"{option} is a name or a JSON object, not {text!r}") from None


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("..")
    if not (first.isdecimal() and (last or first).isdecimal()) or not 0 < int(first) <= int(last or first):
        raise ValueError(f"--gpus of a simulation is a range such as 8..4096, not {text!r}")
    return int(first), int(last or first)
