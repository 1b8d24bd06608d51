"""`qkv cost --roofline`: what binds a training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...cli.say import console

if TYPE_CHECKING:
    from ...nn.cost.roofline import Roofline


def show_rooflines(rooflines: Sequence[Roofline]) -> None:
    """Print the components of the first roofline, with the rows in which the others differ, and what follows from them."""
    from rich.table import Table

    first = rooflines[0]
    hardware, precision = first.hardware, first.precision
    out = console()
    ridge = hardware.ridge(precision)
    out.print(
        f"\nWhat binds a training step on {hardware.name} in {precision} ({ridge:,.0f} FLOPs in the time of a byte):",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for header in ("FLOPs", "moved", "FLOPs/byte", "time", "share", "bound by"):
        table.add_column(header, justify="right", no_wrap=True)
    for line in rooflines:
        for one in line.components:
            if line is not first and one in first.components:
                continue
            name = f"scores, {line.attention}" if one.name == "attention scores" else one.name
            seconds = one.seconds(hardware, precision)
            share = f"{seconds / line.seconds:.0%}" if line is first else "–"
            work = one.work
            intensity = f"{work.intensity:,.0f}" if work.flops else "0"
            moved, bound = f"{work.bytes / 1e6:,.0f} MB", work.bound(hardware, precision)
            table.add_row(name, f"{work.flops:.3g}", moved, intensity, f"{seconds * 1e3:,.2f} ms", share, bound)
    out.print(table, highlight=False)
    for line in rooflines:
        attention = "A" if line.attention == "step-by-step" else f"With {line.attention} attention a"
        out.print(
            f"{attention} step takes at least {line.seconds * 1e3:,.1f} ms. The device is busy all "
            f"the time, but {line.waiting:.0%} of it with moving bytes: it uses at most {line.mfu:.0%} of its FLOPs (MFU).",
            highlight=False,
            soft_wrap=True,
        )
