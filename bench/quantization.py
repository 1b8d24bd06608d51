"""`python -m bench quantization RUN`: the perplexity and the size on disk of a language model with weights of 8 and 4 bits.

Every format is evaluated on the test split of the run's recipe, rounded and by the methods that read calibration data, of
the training split. The table is in docs/quantization.md, with the command that trains the run which it is of.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from qkv.io.directories.layout import WEIGHTS
from qkv.lab.quantize.quality import Quality, of_test_split
from qkv.nn.models.quantized.quantize import Quantized
from qkv.nn.quantization.scheme import Scheme
from qkv.runs.inference.quantization.quantize import EXAMPLES, quantized
from qkv.runs.inference.run import Run, load

from . import machine
from .page_tables import keep

RESULT = Path(__file__).resolve().parent / "results" / "quantization" / "perplexity.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "quantization.md"
WORST = 2  # layers that a row of the table names
ASKED = {"int8": 0.5, "int4": 3.0}  # % of perplexity: of every int8, and of int4 by GPTQ or AWQ


class Setting(NamedTuple):
    """How a run is quantized; `group` is None for one scale per row."""

    weights: str
    group: int | None
    method: str
    activations: str = "none"

    @property
    def scheme(self) -> Scheme:
        return Scheme(weights=self.weights, group_size=self.group, activations=self.activations)  # type: ignore[arg-type]


METHODS = ("rtn", "gptq", "awq")
SETTINGS = (
    Setting("int8", None, "rtn"),
    Setting("int8", None, "rtn", "int8"),
    Setting("int8", 128, "rtn"),
    Setting("int8", 64, "rtn"),
    *(Setting("int4", group, method) for group in (128, 64) for method in METHODS),
    *(Setting("nf4", group, method) for group in (128, 64) for method in METHODS),
    Setting("fp8", None, "rtn"),
    Setting("fp8", None, "rtn", "fp8"),
    *(Setting("mxfp4", 32, method) for method in METHODS),
)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench quantization", description=__doc__)
    parser.add_argument("run", help="the directory of a language model with a recipe")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="of calibration data")
    parser.add_argument("--quick", action="store_true", help="three settings, nothing kept")
    given = parser.parse_args(words)
    run = load(given.run, "cpu")
    settings = (SETTINGS[0], SETTINGS[4], SETTINGS[5]) if given.quick else SETTINGS
    result = measured(run, settings, given.examples)
    print(table(result))
    if not given.quick:
        RESULT.parent.mkdir(exist_ok=True)
        keep(result, RESULT, PAGE, "quantization", table(result))
    return 0


def measured(run: Run, settings: tuple[Setting, ...], examples: int) -> dict[str, Any]:
    before: Quality = of_test_split(run)
    rows: list[dict[str, Any]] = []
    for number, setting in enumerate(settings, 1):
        print(f"{number}/{len(settings)}: {setting}", file=sys.stderr, flush=True)
        rows.append({**setting._asdict(), **_of(run, setting, examples)})
    return {
        **machine.stamp(),
        "parameters": sum(p.numel() for p in run.model.parameters()),
        "perplexity": before.metrics["perplexity"],
        "on_disk": _size(run),
        "examples": before.examples,
        "calibration": examples,
        "rows": rows,
    }


def _of(run: Run, setting: Setting, examples: int) -> dict[str, Any]:
    done: Quantized
    data = None if setting.method == "rtn" else "train"
    other, done = quantized(run, setting.scheme, method=setting.method, calibrate=data, examples=examples)  # type: ignore[arg-type]
    perplexity = of_test_split(other).metrics["perplexity"]
    return {"perplexity": perplexity, "on_disk": _size(other), "worst": done.worst(WORST)}


def _size(run: Run) -> int:
    """Bytes of the file of weights."""
    with TemporaryDirectory() as folder:
        return (run.save(Path(folder) / "run", "qkv") / WEIGHTS).stat().st_size


def table(result: dict[str, Any]) -> str:
    """The table in Markdown, with what it was measured on."""
    base, where = result["perplexity"], result["machine"]
    lines = [
        "| weights | group | activations | method | perplexity | change | MB on disk | worst layers (relative error) |",
        "|---|---|---|---|---:|---:|---:|---|",
        f"| fp32 | | | | {base:.2f} | | {result['on_disk'] / 1e6:.2f} | |",
    ]
    for row in result["rows"]:
        worst = ", ".join(f"`{_short(path)}` {error:.3f}" for path, error in row["worst"].items())
        activations = "" if row["activations"] == "none" else row["activations"]
        lines.append(
            f"| {row['weights']} | {row['group'] or 'row'} | {activations} | {row['method']} | {row['perplexity']:.2f} | "
            f"{_change(row, base):+.2f} % | {row['on_disk'] / 1e6:.2f} | {worst} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            _asked(result["rows"], base),
            "",
            f"Measured by `python -m bench quantization` on {result['date']}, commit {result['code']['commit']}: a language "
            f"model of {result['parameters']:,} parameters, {result['examples']} examples of the test split, "
            f"{result['calibration']} of calibration data; {where['processor']}, Python {result['versions']['python']}, "
            f"PyTorch {result['versions']['torch']}. Errors are of weights for rtn, and of outputs on the calibration data "
            "for gptq and awq.",
        ]
    )


def _asked(rows: list[dict[str, Any]], base: float) -> str:
    int8 = max(_change(row, base) for row in rows if row["weights"] == "int8")
    int4 = max((_change(row, base) for row in rows if row["weights"] == "int4" and row["method"] != "rtn"), default=0.0)
    met = {True: "reached", False: "**not reached**"}
    return (
        f"Goals: int8 ≤ +{ASKED['int8']} %: {met[int8 <= ASKED['int8']]} by all rows (at most {int8:+.2f} %). int4 by GPTQ "
        f"or AWQ ≤ +{ASKED['int4']:.0f} %: {met[int4 <= ASKED['int4']]} by all rows (at most {int4:+.2f} %)."
    )


def _change(row: dict[str, Any], base: float) -> float:
    """Return the change in perplexity, in %."""
    return 100 * (row["perplexity"] / base - 1)


def _short(path: str) -> str:
    return path.replace("decoder.blocks.", "blocks.")
