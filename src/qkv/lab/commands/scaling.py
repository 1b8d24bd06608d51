"""`qkv scaling`: train a ladder of models and fit scaling laws; `qkv scaling fit`: fit a table of points alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ...cli.options import Device, Json, Overwrite, Settings
from ...cli.say import console, echo, echo_json
from .studies import Recipe, interrupted, resume_or_overwrite

if TYPE_CHECKING:
    from ..laws.laws import Laws
    from ..scaling.scaling import Scaled

DEFAULT = "run"


class _Scaling(TyperGroup):
    """Commands of which `run` need not be named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = not args or args[0] in self.commands
        return super().parse_args(ctx, args if named else [DEFAULT, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest


app = typer.Typer(
    cls=_Scaling,
    no_args_is_help=True,
    short_help="Train a ladder of models and fit scaling laws.",
    rich_markup_mode="markdown",
)


@app.command(DEFAULT)
def run(
    recipe: Recipe,
    settings: Settings = None,
    budgets: Annotated[
        str | None,
        typer.Option(metavar="FLOPS,…", help="Budgets of training FLOPs: `1e12,2e12,4e12`. [default: the recipe's]"),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="WIDTHxLAYERS,…", help="Sizes of the models: `64x2,128x4`. [default: five up to the recipe's own]"
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RULE", help="Learning rates: `width^-1`, `width^-0.5` or `constant`. [default: width^-0.5]"
        ),
    ] = None,
    hold_out: Annotated[
        str | None,
        typer.Option(metavar="largest|none", help="Predict the runs of the largest model from the others."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Runs at a time. [default: one per CPU thread; 1 on a GPU]")
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Refuse a ladder that would take longer by prediction: `30m`, `2h`."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The directory. [default: runs/NAME-scaling]")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the runs and their predicted time, and stop.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the study in the directory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the study in the directory.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> int:
    """Train models of several sizes at several budgets, fit scaling laws to their losses, and write a report.

    Each run takes as many steps as its budget of FLOPs allows. The report has Kaplan's and Chinchilla's laws, IsoFLOP
    profiles, the compute-optimal frontier, and the predicted losses of the largest model, which is held out of the fits.
    `qkv scaling fit TABLE` fits the laws to a table of points instead.
    """
    resume_or_overwrite(resume, overwrite, "a study")
    from ...training.settings import read_seconds
    from ..scaling.scaling import scale
    from ..scaling.study import ScalingStudy

    study = ScalingStudy.load(
        recipe,
        settings or (),
        budgets=None if budgets is None else _numbers("--budgets", budgets),
        sizes=None if sizes is None else tuple(size.strip() for size in sizes.split(",")),
        rate=rate,
        hold_out=hold_out,
    )
    folder = out or Path("runs") / f"{study.name}-scaling"
    result = scale(
        study,
        folder,
        jobs=jobs,
        seconds=None if time is None else read_seconds(time),
        plan=plan,
        resume=resume,
        overwrite=overwrite,
        device=device,
        console=console(stderr=json),
    )
    return 0 if plan else _end(result, json)


@app.command("fit")
def fit(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="A CSV file with the columns parameters, tokens (or flops) and loss."),
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a report.")] = None,
    overwrite: Overwrite = False,
    budgets: Annotated[
        str | None, typer.Option("--predict", metavar="FLOPS,…", help="Predict the best use of these budgets.")
    ] = None,
    leave_out: Annotated[
        int,
        typer.Option("--leave-out-highest", metavar="N", min=0, help="Leave out the N points with the highest loss."),
    ] = 0,
    bootstrap: Annotated[
        int, typer.Option(metavar="N", min=0, help="Refits of resampled points for the intervals; 0 for none.")
    ] = 200,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the resamples.")] = 0,
    json: Json = False,
) -> None:
    """Fit scaling laws to a table of training runs: Chinchilla's parametric loss, IsoFLOP profiles, and Kaplan's laws."""
    from dataclasses import asdict

    from ...io.directories.layout import claim_page
    from ..laws.laws import fit_laws
    from ..laws.points import read_points

    if out is not None and out.suffix != ".html":
        raise ValueError(f"--out writes an .html file, not {out.name}")
    claim_page(out, overwrite)
    points = read_points(table)
    laws = fit_laws(points.without_highest(leave_out) if leave_out else points, bootstrap=bootstrap, seed=seed)
    asked = () if budgets is None else _numbers("--predict", budgets)
    if json:
        predicted = [asdict(laws.optimum(flops)) for flops in asked]
        echo_json({**laws.to_dict(), "budgets": predicted})
    else:
        _print(laws, asked)
    if out is not None:
        from ..scaling.page import PointsSource, write_page

        note = f"{len(points) - len(laws.points)} points of highest loss are left out." if leave_out else ""
        write_page(laws, out, PointsSource(table.stem, note), budgets=asked)
        echo(f"wrote {out}", err=True)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{option} is a list of FLOPs such as 1e12,2e12, not {text!r}") from None


def _end(result: Scaled, json: bool) -> int:
    """Print the results of a study. Returns the exit status."""
    if result.laws is None:
        return interrupted("study", result.folder)
    if json:
        echo_json({**result.laws.to_dict(), "held_out": [one.to_dict() for one in result.held_out]})
        return 0
    _print(result.laws, ())
    for one in result.held_out:
        echo(f"held out {one.run}: predicted {one.predicted.value:.4f}, measured {one.loss:.4f} ({one.error:+.2%})")
    echo(f"The study is in {result.folder}; open {result.report} in a browser.")
    return 0


def _print(laws: Laws, budgets: tuple[float, ...]) -> None:
    """Print the fitted laws, in the order of the report."""
    from ...look.svg import readable
    from ..laws.laws import LEVEL, SYMBOLS

    echo(f"{len(laws.points)} points, intervals of {LEVEL:.0%}:")
    echo("L = E + A / N^α + B / D^β  (Hoffmann et al. 2022)")
    for name, one in laws.constants().items():
        echo(f"  {SYMBOLS[name]} = {one.value:.4g}  ({one.low:.4g} … {one.high:.4g})")
    a, b = laws.exponents()
    echo(
        f"  N_opt ∝ C^{a.value:.3f} ({a.low:.3f} … {a.high:.3f}), D_opt ∝ C^{b.value:.3f} ({b.low:.3f} … {b.high:.3f})"
    )
    if laws.isoflop is not None and laws.isoflop.a is not None:
        inside = sum(parabola.inside for parabola in laws.isoflop.parabolas)
        echo(f"IsoFLOP profiles: N_opt ∝ C^{laws.isoflop.a:.3f} from {inside} minima")
    kaplan = laws.kaplan
    exponents = f"α_N = {kaplan.alpha_N:.4f}, α_D = {kaplan.alpha_D:.4f}"
    echo(f"Kaplan et al. 2020: {exponents}, N_c = {kaplan.N_c:.3g}, D_c = {kaplan.D_c:.3g}")
    if laws.compute is not None:
        law = laws.compute
        echo(f"  α_C = {law.alpha_C:.4f}, C_c = {law.C_c:.3g} from {law.points} points on the frontier")
    for flops in budgets:
        best = laws.optimum(flops)
        n, d, loss = best.parameters, best.tokens, best.loss
        echo(
            f"{flops:.3g} FLOPs: N = {readable(n.value)} ({readable(n.low)} … {readable(n.high)}), D = {readable(d.value)} "
            f"({readable(d.low)} … {readable(d.high)}), loss {loss.value:.4f} ({loss.low:.4f} … {loss.high:.4f})"
        )
    for remark in laws.remarks():
        echo(remark)
