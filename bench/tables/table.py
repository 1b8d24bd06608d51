"""What a table is, and the pieces of Markdown that tables share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..lockstep import PROBE, Case, Contender, describe
from ..results import Record, Result

Rows = Iterable[Iterable[str]]


@dataclass(frozen=True)
class Table:
    """`cases(quick)` says what is compared, `render(result)` writes it as Markdown; `rounds` unless asked otherwise.

    `lacks` says, if it can't be measured here, why. `draw(result)` gives the figures that `render` refers to: SVG by
    the name of its file.
    """

    name: str
    rounds: int
    cases: Callable[[bool], list[Case]]
    render: Callable[[Result], str]
    lacks: Callable[[], str] = str
    draw: Callable[[Result], dict[str, str]] = lambda result: {}


def probe(quick: bool) -> Contender:
    options = {"size": 128, "mib": 4} if quick else {}
    return Contender(PROBE, "bench.probes:Probe", options)


def markdown(header: Iterable[str], rows: Rows) -> str:
    """A table, its first column to the left and the others to the right."""
    header = list(header)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float) -> str:
    """Three significant digits, without an exponent."""
    if x >= 1000:
        return f"{x:,.0f}"
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def spread(values: list[float]) -> str:
    """The median, and in parentheses the least and the greatest of the rounds."""
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def verdict(what: str, value: float, target: float, unit: str = "", least: bool = False) -> str:
    """A line that holds a number against its target; `least`: the target is a lower bound."""
    met = value >= target if least else value <= target
    sign = "≥" if least else "≤"
    return f"- {what}: **{value:.2f}{unit}**, target {sign} {target:g}{unit}: {'met' if met else 'not met'}."


def errors(result: Result) -> list[str]:
    """What could not be measured, and why."""
    return [
        f"- {name} ({describe(case['key'])}) failed: {why}"
        for case in result.cases
        for name, why in case["errors"].items()
    ]


def profiles(result: Result, name: str, title: Callable[[dict[str, Any]], str], rows: int = 5) -> list[str]:
    """Where a contender's time goes, one line a case."""
    lines = []
    for case in result.cases:
        found = Record(case).profile(name)[:rows]
        if found:
            parts = ", ".join(f"`{operation}` {share:.0%}" for operation, share in found)
            lines.append(f"- {title(case['key'])}: {parts}")
    return lines


def provenance(result: Result) -> str:
    """When, on what, and by which command."""
    machine, code = result.machine, result.code
    versions = "; ".join(
        f"{environment}: " + ", ".join(f"{library} {version}" for library, version in found.items())
        for environment, found in result.versions.items()
    )
    probed = [reading for case in result.cases for reading in case.get("probes", ())]
    lines = [
        f"Measured {result.date} with `{result.command}`: {result.rounds} rounds, {result.threads} threads, "
        f"{machine['processor']} ({', '.join(machine['instructions'])}), {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, {machine['system']}; commit {code['commit']}"
        f"{' with changes' if code['changed'] else ''} (sources {code['digest']}).",
        f"Load average {result.load_before} before, {result.load_after} after. {versions}." if versions else "",
        _probes(probed),
        *result.notes,
    ]
    return "<sub>" + " ".join(line for line in lines if line) + "</sub>"


def _probes(readings: list[dict[str, float]]) -> str:
    if not readings:
        return ""
    units = {"gemm_fp32": "GFLOP/s fp32", "gemm_bf16": "GFLOP/s bf16", "read": "GB/s read"}
    parts = []
    for name, unit in units.items():
        values = [reading[name] for reading in readings]
        parts.append(f"{number(median(values))} ({number(min(values))}–{number(max(values))}) {unit}")
    return "Probes between the rounds, median and range: " + ", ".join(parts) + "."
