"""`qkv cost traffic`: bytes that attention moves with scores written to memory, and in tiles, by length and hardware."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...cli.options import Json
from ...cli.say import console, echo_json
from .cost_plan import described


def traffic(
    length: Annotated[
        str, typer.Option(metavar="N|N,N|A..B", help="Tokens: one length, several, or from A on doubled up to B.")
    ] = "1024,4096,16384,65536",
    width: Annotated[int, typer.Option(metavar="D", help="Width of a head.", min=1)] = 64,
    heads: Annotated[int, typer.Option(metavar="H", help="Heads of all rows.", min=1)] = 16,
    hardware: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|JSON",
            help="A device: `h100`, `h200`, `b200`, `a100`, `4090`, `p100`, or described in JSON or a .json file; "
            "repeatable. [default: a100 and h100]",
        ),
    ] = None,
    precision: Annotated[str, typer.Option(metavar="bf16|fp16|fp32", help="Of queries, keys and values.")] = "bf16",
    measure: Annotated[
        bool, typer.Option("--measure", help="Also time both on this machine, in fp32, for lengths that take seconds.")
    ] = False,
    json: Json = False,
) -> None:
    """Predict the bytes that a forward pass of attention moves: materialized scores beside FlashAttention's tiles.

    Predictions follow the papers' counts: FlashAttention (Dao et al. 2022, algorithms 0 and 1) and FlashAttention-2 (Dao
    2023). `--measure` adds seconds that this machine takes.
    """
    from rich.table import Table

    from ...nn.cost.accelerators import accelerator
    from ...nn.cost.traffic import measured
    from ...nn.cost.traffic import traffic as predicted

    lengths = _lengths(length)
    devices = [accelerator(described(name, "--hardware")) for name in hardware or ("a100", "h100")]
    rows = [row for device in devices for row in predicted(lengths, device, width, heads, precision)]
    here = {n: measured(n, width, heads) for n in lengths} if measure else {}
    if json:
        echo_json([{**_fields(row), "measured": here.get(row.n)} for row in rows])
        return
    table = Table(box=None, pad_edge=False)
    headers = ("tokens", "device", "MB written out", "Flash", "Flash-2", "less", "ms written out", "Flash-2")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        moved = {name: work.bytes for name, work in row.works.items()}
        seconds = [f"{row.seconds(name) * 1e3:,.3g}" for name in ("materialized", "flash-2")]
        less = f"{moved['materialized'] / moved['flash-2']:.1f}×"
        cells = [f"{one / 1e6:,.0f}" for one in moved.values()]
        table.add_row(f"{row.n:,}", row.hardware.name, *cells, less, *seconds)
    out = console()
    out.print(table)
    note = (
        f"\nPredicted, of {heads:,} heads of width {width:,} in {precision}: bytes by the papers' formulas, time as the "
        "longer of arithmetic and of moving bytes. Caches, masks and dropout are not counted. Written out: scores and "
        "weights go through memory."
    )
    out.print(note, highlight=False, markup=False, soft_wrap=True)
    for n, times in here.items():
        said = "not measured: too large" if times is None else f"materialized {times[0]:.3g} s, fused {times[1]:.3g} s"
        out.print(f"Measured here in fp32, {n:,} tokens: {said}", highlight=False, markup=False, soft_wrap=True)


def _fields(row: Any) -> dict[str, Any]:
    return {
        "tokens": row.n,
        "hardware": row.hardware.name,
        "passes": row.passes,
        "flops": row.works["materialized"].flops,
        "bytes": {name: work.bytes for name, work in row.works.items()},
        "seconds": {name: row.seconds(name) for name in row.works},
    }


def _lengths(text: str) -> list[int]:
    """One length, several, or a range whose lengths double."""
    from ...nn.cost.sweep import read_range

    if text.isdecimal() and int(text):
        return [int(text)]
    try:
        return read_range(f"tokens={text}")[1]
    except ValueError:
        raise ValueError(
            f"--length is a number of tokens, several such as 1024,4096, or a range such as 1k..64k, not {text!r}"
        ) from None
