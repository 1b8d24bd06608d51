"""Write the table of an ablation as Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import math
from pathlib import Path

from ...core.metrics.display import display_of
from ...data.files.csv_dialect import written
from ...io.directories.layout import write_json, write_text
from ...look.formatting import scaled, shown
from ...look.svg import readable
from .summary import AblationSummary, Spread, VariantRow

FILES = ("table.md", "table.tex", "table.csv", "table.json")
_MOST = 3  # metrics in a terminal
_LABEL = 24  # columns that a variant's description gets there at least
_COSTS = ("parameters", "FLOPs")
_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "–": "--",
    "√": r"$\sqrt{}$",
    "×": r"$\times$",
    "−": "$-$",
}


def write_tables(summary: AblationSummary, out: Path) -> None:
    """Write `table.md`, `table.tex`, `table.csv` and `table.json`."""
    write_text(out / "table.md", markdown(summary))
    write_text(out / "table.tex", latex(summary))
    write_text(out / "table.csv", as_csv(summary))
    write_json(out / "table.json", summary.to_dict())


def markdown(summary: AblationSummary) -> str:
    head, rows = cells(summary)
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    plain = ((" ".join(cell.splitlines()).replace("|", "\\|") for cell in line) for line in lines)
    return "".join("| " + " | ".join(line) + " |\n" for line in plain)


def latex(summary: AblationSummary) -> str:
    """A table for the package booktabs."""
    head, rows = cells(summary)
    lines = [" & ".join(map(_escaped, line)) + r" \\" for line in (head, *rows)]
    columns = "l" + "r" * (len(head) - 1)
    top, bottom = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join([*top, lines[0], r"\midrule", *lines[1:], *bottom])


def as_csv(summary: AblationSummary) -> str:
    """Numbers in full; a row for each variant, and for each metric its mean, standard deviation and values by seed."""
    head = [
        "variant",
        "settings",
        "parameters",
        "flops",
        "predicted_seconds",
        "seconds",
        "tokens_per_second",
        "diverged",
    ]
    for metric in summary.metrics:
        head += [f"{metric}_mean", f"{metric}_sd", *(f"{metric}_seed_{seed}" for seed in summary.seeds)]
        head += [f"{metric}_difference", f"{metric}_difference_low", f"{metric}_difference_high"]
    lines: list[list[object]] = [[*head]]
    for row in summary.rows:
        line: list[object] = [row.label, " ".join(row.settings), row.forecast.parameters, row.forecast.flops]
        line += [row.forecast.seconds, _mean(row.seconds), _mean(row.speed), " ".join(map(str, row.diverged))]
        for metric in summary.metrics:
            spread = row.metrics.get(metric)
            values = {} if spread is None else spread.values
            line += [_mean(spread), None if spread is None else spread.sd, *(values.get(s) for s in summary.seeds)]
            line += [row.differences.get(metric), *row.intervals.get(metric, (None, None))]
        lines.append(line)
    return written(lines)


def cells(summary: AblationSummary, most: int | None = None) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table in words: metrics (the first `most`) as mean ± standard deviation, and costs."""
    metrics = [name for name in summary.metrics if not display_of(name).part][:most]
    head = ["variant", *(display_of(name).title for name in metrics), "runs", "parameters", "FLOPs", "seconds"]
    return head, [_cells(row, metrics, len(summary.seeds)) for row in summary.rows]


def short_cells(summary: AblationSummary, width: int) -> tuple[list[str], list[list[str]]]:
    """The head and rows for a terminal of `width` columns: as many metrics as leave room for the variants, and no costs that
    are the same for all."""
    for most in range(_MOST, 0, -1):
        head, rows = cells(summary, most)
        kept = [i for i, name in enumerate(head) if name not in _COSTS or len({row[i] for row in rows}) > 1]
        head, rows = [head[i] for i in kept], [[row[i] for i in kept] for row in rows]
        widths = [max(map(len, column)) + 2 for column in zip(head, *rows, strict=True)]
        if sum(widths[1:]) + min(widths[0], _LABEL) <= width:
            break
    return head, rows


def paired(summary: AblationSummary) -> list[str]:
    """A sentence for each variant on its differences in the first metric and in the loss, with intervals over seeds if
    there are any."""
    metrics = [name for place, name in enumerate(summary.metrics) if place == 0 or name == "loss"]
    lines = []
    for row in summary.rows:
        for metric in (name for name in metrics if name in row.differences):
            low, high = row.intervals.get(metric, (math.nan, math.nan))
            known = (
                f", 95 % interval {signed(metric, low)} to {signed(metric, high)}" if metric in row.intervals else ""
            )
            title = display_of(metric).title
            lines.append(f"{row.label}: {title} {signed(metric, row.differences[metric])} from the baseline{known}")
    return lines


def same_results(summary: AblationSummary) -> list[str]:
    """A sentence for each pair of variants that gave the same numbers."""
    return [
        f"{one} and {other} gave the same numbers in every run: what tells them apart has no effect here."
        for one, other in summary.same()
    ]


def _cells(row: VariantRow, metrics: list[str], seeds: int) -> list[str]:
    flops = "–" if row.forecast.flops is None else f"{row.forecast.flops:.2e}"
    seconds = "–" if row.seconds is None else readable(row.seconds.mean)
    return [
        row.label,
        *(with_deviation(name, row.metrics.get(name)) for name in metrics),
        runs_of(row, seeds),
        f"{row.forecast.parameters:,}",
        flops,
        seconds,
    ]


def runs_of(row: VariantRow, seeds: int) -> str:
    """How many runs are done, and how many of them diverged."""
    done = f"{len(row.finished)} of {seeds}"
    return f"{done}, {len(row.diverged)} diverged" if row.diverged else done


def with_deviation(metric: str, spread: Spread | None) -> str:
    """`41.2 ± 0.3`, in the units in which the metric is shown; a dash if there is no value."""
    if spread is None:
        return "–"
    mean = shown(metric, spread.mean)
    if spread.sd is None:
        return mean
    if display_of(metric).scale == "number":
        return f"{mean} ± {readable(spread.sd, 2)}"
    number, space, unit = mean.partition(" ")
    places = len(number.partition(".")[2])
    return f"{number} ± {scaled(metric, 1) * spread.sd:.{places}f}{space}{unit}"


def signed(metric: str, value: float) -> str:
    """A difference of a metric with its sign, in the units in which it is shown."""
    percent = display_of(metric).scale == "fraction"
    number = f"{100 * value:+.2f}" if percent else readable(value, 3)
    return number if percent or value < 0 else f"+{number}"


def _mean(spread: Spread | None) -> float | None:
    return None if spread is None else spread.mean


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
