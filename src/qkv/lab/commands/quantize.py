"""`qkv quantize`: give a run weights of 8 or 4 bits, and report what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...cli.options import Device, Json, RunPath
from ...cli.say import echo, warn


def quantize(
    run: RunPath,
    weights: Annotated[
        str, typer.Option("--weights", metavar="int8|int4|nf4|fp8|mxfp4", help="How the weights are stored.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The directory of the quantized run. [default: RUN-WEIGHTS]"),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size",
            metavar="N",
            min=1,
            help="Neighboring inputs that share a scale. [default: all for int8 and fp8, 128 for int4, 64 for nf4, 32 for "
            "mxfp4]",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="rtn|gptq|awq",
            help="How codes are chosen: rounding, which needs no data, GPTQ or AWQ. [default: gptq with --calibrate and 4 "
            "bits, else rtn]",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            "--calibrate",
            metavar="SPLIT | FILE",
            help="Calibration data: a split of the run's data (`train`, `validation`), or a text file. [default: train, for "
            "gptq and awq]",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", metavar="N", min=1, help="Examples of calibration data.")
    ] = 128,
    activations: Annotated[
        str,
        typer.Option(
            "--activations",
            metavar="none|int8|fp8",
            help="Also round the inputs of products, each token by its largest number.",
        ),
    ] = "none",
    symmetric: Annotated[
        bool, typer.Option("--symmetric/--asymmetric", help="Without zero points, or with them (int8 and int4).")
    ] = True,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Quantize the tables of tokens too.")] = False,
    head: Annotated[bool, typer.Option("--head", help="Quantize the output layer too.")] = False,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="PATTERN", help="Layers to leave as they are, such as `*.down`; repeatable."),
    ] = None,
    evaluate: Annotated[bool, typer.Option("--evaluate/--no-evaluate", help="Evaluate before and after.")] = True,
    max_examples: Annotated[
        int | None, typer.Option("--max-examples", metavar="N", min=1, help="Examples of the evaluations.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Store the weights of a run in 8 or 4 bits, and report the memory saved and the quality lost.

    The linear layers of the stacks are quantized, embeddings and the output layer only on request. The quantized run
    generates, evaluates and saves like any other; `quantization.html` shows its quality before and after, and the error of
    each layer.
    """
    from rich.console import Console

    from ...runs.inference.quantization.quantize import rounded_message
    from ..quantize import quantize as quantize_run
    from ..quantize.page import calibration_title, change, size

    result = quantize_run(
        run,
        out,
        weights=weights,  # type: ignore[arg-type]  # checked there, as the next three
        group_size=group_size,
        symmetric=symmetric,
        activations=activations,  # type: ignore[arg-type]
        method=method,  # type: ignore[arg-type]
        calibrate=calibrate,
        examples=examples,
        embeddings=embeddings,
        head=head,
        keep=keep or (),
        evaluate=evaluate,
        max_examples=max_examples,
        overwrite=overwrite,
        device=device,
        console=Console(quiet=json),
    )
    if result.rounded:
        warn(rounded_message(result.rounded))
    if json:
        echo(result.to_json())
        return
    before, after = result.sizes
    echo(f"{len(result.errors)} layers in {result.weights} by {result.method}")
    echo(f"weights: {size(before)} → {size(after)} ({before / after:.2f}× smaller)")
    for name, value in result.metrics.get("before", {}).items():
        now = result.metrics["after"].get(name)
        if now is not None:
            echo(f"{name}: {value:.4g} → {now:.4g} ({change(value, now) or 'was 0'})")
    if result.metrics:
        echo(f"  on {result.examples:,} examples of {result.evaluated_on}")
    else:
        echo("not evaluated" + (": there are no data; give a text file by --calibrate" if evaluate else ""))
    worst = ", ".join(f"{name} {error:.3g}" for name, error in result.worst(3).items())
    if result.calibration:
        echo(f"{calibration_title(result)} {result.calibration}")
        if result.method == "rtn":
            echo("rounding (rtn) gives the same weights without --calibrate; --method gptq or awq calibrates them")
    echo(f"largest errors of {'outputs' if result.calibration else 'weights'}: {worst}")
    echo(f"{result.folder}: the quantized run; {result.folder / 'quantization.html'}: what it cost")
