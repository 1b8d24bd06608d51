"""The report of scaling laws: log–log charts with intervals, the constants, predictions and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ...io.directories.layout import REPORT
from ...look.svg import join, readable, tag
from ...runs.report.story import Section
from ...runs.report.table import table
from ..laws.laws import LEVEL, SYMBOLS, Estimate, Laws
from ..laws.points import Points
from ..studies.page import write_report
from .log_chart import ChartLayer, log_chart
from .runs import Outcome

CURVE = 48  # points of a curve
BEYOND = 10.0  # the factor of the largest compute to which curves are drawn, and a row of budgets goes


@dataclass(frozen=True)
class HeldOut:
    """A run that the fits have not seen, and the loss that they predict for it."""

    run: str
    parameters: int
    tokens: int
    flops: float
    loss: float
    predicted: Estimate

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measured loss."""
        return self.predicted.value / self.loss - 1

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error}


@dataclass(frozen=True)
class PointsSource:
    """Where points come from: a title, a lead, a note, and for a study its runs as (name, lr, steps, outcome)."""

    title: str
    lead: str = ""
    note: str = ""
    runs: Sequence[tuple[str, float, int, Outcome]] = field(default_factory=list)


def write_page(
    laws: Laws, path: Path, source: PointsSource, held_out: Sequence[HeldOut] = (), budgets: Sequence[float] = ()
) -> Path:
    """Write the report and return its path. `budgets` are more FLOPs to predict the best use of."""
    sections = [
        _losses(laws, held_out),
        *_profiles(laws),
        _frontier(laws),
        *([_held_out(held_out)] if held_out else []),
        _budgets(laws, budgets),
        _constants(laws),
        *_remarks(laws),
        *([_runs(source, path.parent)] if source.runs else []),
    ]
    warning = f"{len(laws.parametric.at_bounds)} constants of the parametric fit ended at a bound: see Remarks."
    return write_report(
        path,
        "scaling laws",
        source.title,
        sections,
        lead=source.lead,
        warning=warning if laws.parametric.at_bounds else "",
        facts=_facts(laws, held_out),
    )


def _facts(laws: Laws, held_out: Sequence[HeldOut]) -> list[tuple[str, str, str]]:
    a = laws.exponents()[0]
    facts = [("points fitted", str(len(laws.points)), "")]
    facts += [
        (SYMBOLS[name], f"{one.value:.3f}", _range(one, ".3f"))
        for name, one in laws.constants().items()
        if name in ("E", "alpha", "beta")
    ]
    facts.append(("N_opt ∝ C^a", f"a = {a.value:.3f}", _range(a, ".3f")))
    if held_out:
        largest = max(held_out, key=lambda one: one.flops)
        most = max(abs(one.error) for one in held_out)
        detail = f"of the largest run; at most {most:.2%} of {len(held_out)}"
        facts.append(("held-out error", f"{abs(largest.error):.2%}", detail))
    return facts


def _range(estimate: Estimate, form: str) -> str:
    return f"{estimate.low:{form}} … {estimate.high:{form}}"


def _flops(value: float) -> str:
    return f"{value:.3g}".replace("e+", "e")


def _compute_axis(points: Points) -> list[float]:
    low, high = float(points.flops.min()), float(points.flops.max()) * BEYOND
    return [float(value) for value in np.geomspace(low, high, CURVE)]


def _losses(laws: Laws, held_out: Sequence[HeldOut]) -> Section:
    """The loss of every run, and of the best use of compute, against FLOPs."""
    points = laws.points
    best = [laws.optimum(flops) for flops in _compute_axis(points)]
    layers = [
        ChartLayer(
            "best use of compute, by the parametric loss",
            [(one.flops, one.loss.value) for one in best],
            band=[(one.flops, one.loss.low, one.loss.high) for one in best],
        )
    ]
    if laws.compute is not None:
        line = [(flops, float(laws.compute.loss(flops))) for flops in _compute_axis(points)]
        layers.append(ChartLayer("Kaplan's L(C)", line, color=3))
    rows = points.to_rows()
    layers.append(
        ChartLayer(
            "runs",
            [(row["flops"], row["loss"]) for row in rows],
            marks=True,
            curve=False,
            tooltips=[_tooltip(row["parameters"], row["tokens"], row["loss"]) for row in rows],
            color=4,
        )
    )
    if held_out:
        layers.append(
            ChartLayer(
                "runs held out",
                [(one.flops, one.loss) for one in held_out],
                marks=True,
                curve=False,
                tooltips=[f"{one.run}: {one.loss:.4f}, predicted {one.predicted.value:.4f}" for one in held_out],
                color=2,
            )
        )
    chart = log_chart("Loss against compute", layers, x_label="FLOPs of training", y_label="loss", show_x=_flops)
    return Section(
        "Loss against compute",
        tag("div", chart, class_="charts wide"),
        f"The band is the {LEVEL:.0%} interval of the curve.",
    )


def _tooltip(parameters: float, tokens: float, loss: float) -> str:
    return f"N = {readable(parameters)}, D = {readable(tokens)}: loss {loss:.4f}"


def _profiles(laws: Laws) -> list[Section]:
    """The IsoFLOP profiles: parabolas of the loss in log N, with the predictions of the parametric loss."""
    if laws.isoflop is None or not laws.isoflop.parabolas:
        return []
    points, layers, minima = laws.points, [], []
    for i, parabola in enumerate(laws.isoflop.parabolas):
        sizes = np.geomspace(*parabola.sizes, CURVE)
        layers.append(ChartLayer("", list(zip(sizes.tolist(), parabola.at(sizes).tolist(), strict=True)), color=i))
        near = points[np.abs(np.log(points.flops / parabola.flops)) < np.log(1.08)]
        runs = near.to_rows()
        layers.append(
            ChartLayer(
                f"{_flops(parabola.flops)} FLOPs",
                [(row["parameters"], row["loss"]) for row in runs],
                marks=True,
                curve=False,
                tooltips=[_tooltip(row["parameters"], row["tokens"], row["loss"]) for row in runs],
                color=i,
            )
        )
        if parabola.inside:
            minima.append((parabola.flops, parabola.parameters, parabola.tokens, parabola.loss))
    chart = log_chart("IsoFLOP profiles", layers, x_label="parameters", y_label="loss")
    rows = [(_flops(flops), [readable(n), readable(d), f"{loss:.4f}"]) for flops, n, d, loss in minima]
    body = tag("div", chart, class_="charts wide")
    if rows:
        body = join(body, table("FLOPs", ["best size", "tokens", "loss"], rows, "minima of the profiles"))
    law = ""
    if laws.isoflop.a is not None and laws.isoflop.b is not None:
        interval = laws.isoflop.a_interval
        within = "" if interval is None else f" ({interval[0]:.3f} … {interval[1]:.3f})"
        law = f" Through the minima, N_opt ∝ C^{laws.isoflop.a:.3f}{within} and D_opt ∝ C^{laws.isoflop.b:.3f}."
    return [Section("IsoFLOP profiles", body, f"A parabola of the loss in log N for each budget.{law}")]


def _frontier(laws: Laws) -> Section:
    """The compute-optimal parameters and tokens against FLOPs, with the minima of the profiles."""
    best = [laws.optimum(flops) for flops in _compute_axis(laws.points)]
    layers = []
    for name, color, attribute in (("N_opt, parameters", 0, "parameters"), ("D_opt, tokens", 1, "tokens")):
        estimates: list[Estimate] = [getattr(one, attribute) for one in best]
        curve = [(one.flops, estimate.value) for one, estimate in zip(best, estimates, strict=True)]
        band = [(one.flops, estimate.low, estimate.high) for one, estimate in zip(best, estimates, strict=True)]
        layers.append(ChartLayer(name, curve, band=band, color=color))
        minima = [p for p in (laws.isoflop.parabolas if laws.isoflop else ()) if p.inside]
        if minima:
            marks = [(p.flops, float(getattr(p, attribute))) for p in minima]
            layers.append(ChartLayer(f"{name} of IsoFLOP minima", marks, marks=True, curve=False, color=color))
    chart = log_chart(
        "Compute-optimal size and tokens", layers, x_label="FLOPs of training", y_label="number", show_x=_flops
    )
    a, b = laws.exponents()
    note = (
        f"By the parametric loss, N_opt ∝ C^{a.value:.3f} ({_range(a, '.3f')}) and D_opt ∝ C^{b.value:.3f} "
        f"({_range(b, '.3f')})."
    )
    return Section("Compute-optimal frontier", tag("div", chart, class_="charts wide"), note)


def _held_out(held_out: Sequence[HeldOut]) -> Section:
    rows = [
        (
            one.run,
            [
                readable(one.parameters),
                readable(one.tokens),
                f"{one.predicted.value:.4f}",
                _range(one.predicted, ".4f"),
                f"{one.loss:.4f}",
                f"{one.error:+.2%}",
            ],
        )
        for one in held_out
    ]
    columns = ["parameters", "tokens", "predicted", f"{LEVEL:.0%} interval", "measured", "error"]
    note = "Runs of the largest model, which the fits have not seen: the predicted loss beside the measured one."
    return Section("Held-out predictions", table("run", columns, rows, "held-out predictions"), note)


def _budgets(laws: Laws, budgets: Sequence[float]) -> Section:
    most = float(laws.points.flops.max())
    rows = []
    for flops in sorted({most, most * BEYOND, *budgets}):
        best = laws.optimum(flops)
        values = [
            f"{readable(one.value)} ({readable(one.low)} … {readable(one.high)})"
            for one in (best.parameters, best.tokens)
        ]
        rows.append((_flops(flops), [*values, f"{best.loss.value:.4f} ({_range(best.loss, '.4f')})"]))
    note = "The largest budget of the points, ten times it, and those asked for; extrapolations are only as good as the law."
    return Section("Predicted for a budget", table("FLOPs", ["parameters", "tokens", "loss"], rows, "budgets"), note)


def _constants(laws: Laws) -> Section:
    """The laws as equations with their constants."""
    rows = [
        (SYMBOLS[name], [f"{one.value:.4g}", f"{one.low:.4g} … {one.high:.4g}"])
        for name, one in laws.constants().items()
    ]
    parametric = table("L = E + A / N^α + B / D^β", ["value", f"{LEVEL:.0%} interval"], rows, "constants")
    fit = laws.kaplan
    kaplan = [
        ("N_c", [f"{fit.N_c:.4g}"]),
        ("α_N", [f"{fit.alpha_N:.4f}"]),
        ("D_c", [f"{fit.D_c:.4g}"]),
        ("α_D", [f"{fit.alpha_D:.4f}"]),
    ]
    if laws.compute is not None:
        kaplan += [("C_c", [f"{laws.compute.C_c:.4g}"]), ("α_C", [f"{laws.compute.alpha_C:.4f}"])]
    title = "L = [(N_c / N)^(α_N / α_D) + D_c / D]^α_D, L(C) = (C_c / C)^α_C"
    note = (
        "N: parameters with embeddings, D: tokens of training, C: FLOPs. "
        f"In these points C = {laws.points.flops_per_parameter:.3g} N D. "
        "First Hoffmann et al. (2022), fitted as by Besiroglu et al. (2024); then Kaplan et al. (2020)."
    )
    return Section(
        "Constants", tag("div", parametric, table(title, ["value"], kaplan, "constants of Kaplan's law")), note
    )


def _remarks(laws: Laws) -> list[Section]:
    remarks = laws.remarks()
    return [Section("Remarks", tag("ul", *(tag("li", remark) for remark in remarks)))] if remarks else []


def _runs(source: PointsSource, folder: Path) -> Section:
    rows: list[tuple[str, list[str | Markup]]] = []
    for name, lr, steps, outcome in source.runs:
        loss = "diverged" if outcome.loss is None else f"{outcome.loss:.4f}"
        report = folder / name / REPORT
        link: str | Markup = tag("a", "report", href=f"{name}/{REPORT}") if report.is_file() else "–"
        rows.append((name, [f"{lr:.2e}", f"{steps:,}", loss, f"{outcome.seconds:,.0f}", link]))
    columns = ["learning rate", "steps", "loss", "seconds", ""]
    return Section("Runs", table("run", columns, rows, "runs"), source.note)
