"""`qkv cost layers`: kinds of layers compared, as in Vaswani et al. (2017), table 1."""

from __future__ import annotations

from typing import Annotated

import typer

from ...cli.options import Json
from ...cli.say import console, echo_json


def layers(
    length: Annotated[int, typer.Option(metavar="N", help="Number of tokens, n.", min=2)] = 1024,
    width: Annotated[int, typer.Option(metavar="D", help="Width of the layer, d.", min=1)] = 512,
    heads: Annotated[int, typer.Option(metavar="H", help="Number of heads, h.", min=1)] = 8,
    kernel: Annotated[int, typer.Option(metavar="K", help="Tokens of a convolution's kernel, k.", min=2)] = 3,
    window: Annotated[int, typer.Option(metavar="R", help="Tokens of the window, r.", min=2)] = 64,
    rank: Annotated[int, typer.Option(metavar="M", help="Keys that Linformer projects to, m.", min=1)] = 256,
    chunk: Annotated[int, typer.Option(metavar="C", help="Tokens of Reformer's chunk, c.", min=1)] = 64,
    devices: Annotated[int, typer.Option(metavar="P", help="Devices of a ring, p.", min=1)] = 8,
    json: Json = False,
) -> None:
    """Compare kinds of layers: FLOPs per layer, sequential operations and the longest path between two tokens.

    Each column has the order of growth and the exact count, by the formulas of qkv's layers. The FLOPs are counted for
    exchanging information between tokens; projections are left out.
    """
    from dataclasses import asdict

    from rich.table import Table

    from ...nn.cost.complexity import compare

    rows = compare(length, width, heads, kernel, window, rank=rank, chunk=chunk, devices=devices)
    if json:
        echo_json([asdict(row) for row in rows])
        return
    table = Table(box=None, pad_edge=False)
    for header in ("layer", "FLOPs", "", "sequential", "", "path", ""):
        table.add_column(header, justify="left" if header else "right")
    for row in rows:
        counts = (f"{row.flops:,}", f"{row.sequential:,}", "–" if row.path is None else f"{row.path:,}")
        cells = [cell for order, count in zip(row.order, counts, strict=True) for cell in (order, count)]
        table.add_row(row.name, *cells)
    out = console()
    out.print(table)
    sizes = f"n = {length:,}, d = {width:,}, h = {heads:,}, k = {kernel:,}, r = {window:,}"
    more = f"m = {rank:,}, c = {chunk:,} in 4 rounds, p = {devices:,}"
    notes = (
        f"\n{sizes}, {more}",
        "Attention is causal, but Linformer's, which mixes all tokens. A ring's FLOPs are one device's.",
    )
    for note in notes:
        out.print(note, highlight=False, markup=False, soft_wrap=True)
