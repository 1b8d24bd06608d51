"""`qkv cost` as a group: `qkv cost NAME` predicts costs, `fit` says what fits into a memory, `layers` compares layers."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from . import cost, cost_layers, cost_sweep, fit

DEFAULT = "predict"


class _Costs(TyperGroup):
    """Commands whose name may be left out: `sweep` with --sweep, `compare` for several names, otherwise `DEFAULT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        if any(arg.partition("=")[0] == "--sweep" for arg in args):
            name = "sweep"
        else:
            several = len(args) > 1 and not any(arg.startswith("-") or "=" in arg for arg in args[:2])
            name = "compare" if several else DEFAULT
        return super().parse_args(ctx, [name, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest


app = typer.Typer(cls=_Costs, short_help="Predict what training costs, and what fits into a memory.")
app.command(DEFAULT)(cost.cost)
app.command("fit")(fit.fit)
app.command("sweep")(cost_sweep.sweep)
app.command("compare")(cost_sweep.compare)
app.command("layers")(cost_layers.layers)
