"""`qkv cost` as a group: `qkv cost NAME` predicts costs, `fit` says what fits into a memory, `layers` compares layers."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from . import cost, cost_layers, fit

DEFAULT = "predict"


class _Costs(TyperGroup):
    """Commands of which `DEFAULT` is run, without its name, if the first argument is not the name of another."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and args[0] in self.commands
        return super().parse_args(ctx, args if named else [DEFAULT, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DEFAULT else name), command, rest


app = typer.Typer(cls=_Costs, short_help="Predict what training costs, and what fits into a memory.")
app.command(DEFAULT)(cost.cost)
app.command("fit")(fit.fit)
app.command("layers")(cost_layers.layers)
