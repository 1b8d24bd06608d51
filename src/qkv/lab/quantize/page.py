"""`quantization.html`: what quantization saved and cost, and the error of every layer."""

from __future__ import annotations

from pathlib import Path

from ...core.metrics.display import display_of
from ...io.directories.layout import write_text
from ...look.formatting import shown
from ...look.heatmap import heat_map
from ...look.html import render
from ...runs.inference.quantization.quantize import rounded_message
from ...runs.report.story import Section
from ...runs.report.table import table
from .result import QuantizedRun

PAGE = "quantization.html"
WORST = 10


def write_page(result: QuantizedRun, folder: Path) -> Path:
    """Write the page into a folder."""
    before, after = result.sizes
    groups = sorted(set(result.groups.values()))
    sections = [_results(result), _rounded(result), _worst(result), _errors(result)]
    page = render(
        "report.html",
        eyebrow="quantization report",
        title=result.folder.name,
        lead=f"{Path(result.source).name} with {result.weights} weights{_activations(result)}, by {result.method.upper()}",
        warning=None,
        facts=[
            ("weights", size(after), f"{size(before)} before"),
            ("smaller by", f"{before / after:.2f}×", ""),
            ("inputs that share a scale", ", ".join(map(str, groups)), ""),
            *([(calibration_title(result), result.calibration, "")] if result.calibration else []),
        ],
        sections=[section for section in sections if section is not None],
    )
    path = folder / PAGE
    write_text(path, page)
    return path


def calibration_title(result: QuantizedRun) -> str:
    """What the calibration data did: rounding to nearest only measures errors on them."""
    return "errors measured on" if result.method == "rtn" else "calibrated on"


def size(count: int) -> str:
    """Bytes with a unit."""
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"


def _activations(result: QuantizedRun) -> str:
    return "" if result.activations == "none" else f" and {result.activations} activations"


def _results(result: QuantizedRun) -> Section | None:
    if not result.metrics:
        return None
    before, after = result.metrics["before"], result.metrics["after"]
    rows = [
        (
            display_of(name).title,
            [shown(name, before[name]), shown(name, after[name]), change(before[name], after[name])],
        )
        for name in before
        if name in after
    ]
    note = f"On {result.examples:,} examples of {result.evaluated_on}."
    return Section("Results", table("", ["before", "quantized", "change"], rows, "results"), note)


def change(before: float, after: float) -> str:
    """A relative change in percent; empty if there is nothing to compare with."""
    return f"{100 * (after / before - 1):+.2f} %" if before else ""


def _worst(result: QuantizedRun) -> Section:
    rows = [(name, [f"{error:.4f}", str(result.groups[name])]) for name, error in result.worst(WORST).items()]
    what = "outputs over the calibration data" if result.calibration else "weights"
    note = f"Relative error of a layer's {what}. Leave layers as they are with --keep."
    return Section("Layers with the largest error", table("layer", ["error", "group"], rows, "worst layers"), note)


def _rounded(result: QuantizedRun) -> Section | None:
    if not result.rounded:
        return None
    rows = [
        (path, [str(len(counts)), ", ".join(f"{expert}: {count}" for expert, count in counts.items())])
        for path, counts in result.rounded.items()
    ]
    columns = ["experts", "tokens of each"]
    return Section(
        "Experts that were rounded", table("layer", columns, rows, "rounded"), rounded_message(result.rounded)
    )


def _errors(result: QuantizedRun) -> Section | None:
    """A picture of the errors: a row for each block, a column for each of its matrices."""
    inside = {name: error for name, error in result.errors.items() if ".blocks." in name}
    if not inside:
        return None
    blocks = list(dict.fromkeys(_split(name)[0] for name in inside))
    columns = list(dict.fromkeys(_split(name)[1] for name in inside))
    largest = max(inside.values()) or 1.0
    values = {_split(name): error / largest for name, error in inside.items()}
    cells = [[values.get((block, column), 0.0) for column in columns] for block in blocks]
    picture = heat_map(cells, blocks, columns, f"error of each layer, the largest ({largest:.4f}) = 1")
    return Section("Errors by layer", picture)


def _split(name: str) -> tuple[str, str]:
    """`decoder.blocks.3.attention.q` is `q` of attention in `decoder.3`."""
    stack, _, index, *rest = name.split(".")
    return f"{stack}.{index}", ".".join(rest)
