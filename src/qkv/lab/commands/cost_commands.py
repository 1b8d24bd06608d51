"""`qkv cost` as a group: `qkv cost NAME` predicts costs, `fit` shows what fits into memory, `layers` compares layers …"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from . import cost, cost_layers, cost_plan, cost_sweep, cost_traffic, fit

DEFAULT = "predict"
BY_OPTION = ("sweep", "plan", "simulate", "published")


class _Costs(TyperGroup):
    """Commands whose name may be left out: one with the name of an option, such as `sweep` with --sweep, `compare` for
    several names, otherwise `DEFAULT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] in self.commands:
            return super().parse_args(ctx, args)
        options = [arg.partition("=")[0] for arg in args]
        name = next((name for name in BY_OPTION if f"--{name}" in options), "")
        if not name:
            several = len(args) > 1 and not any(arg.startswith("-") or "=" in arg for arg in args[:2])
            name = "compare" if several else DEFAULT
        return super().parse_args(ctx, [name, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest


app = typer.Typer(
    cls=_Costs, short_help="Predict what training costs, and what fits into memory.", rich_markup_mode="markdown"
)
app.command(DEFAULT)(cost.cost)
app.command("fit")(fit.fit)
app.command("sweep")(cost_sweep.sweep)
app.command("compare")(cost_sweep.compare)
app.command("plan")(cost_plan.plan)
app.command("simulate")(cost_plan.simulate)
app.command("published")(cost_plan.published)
app.command("layers")(cost_layers.layers)
app.command("traffic")(cost_traffic.traffic)
