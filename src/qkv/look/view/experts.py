"""Which experts of a mixture took which token, recorded from the routers of one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from ...nn.attention.own_calls import hooked
from ...nn.layers.moe import Routed, Router
from .panels import Panel, heat_panel


@dataclass(frozen=True, eq=False)
class Routing:
    """The experts of each token in one layer, best first, with their gates."""

    name: str
    experts: Int[Tensor, "T K"]
    gates: Float[Tensor, "T K"]


@dataclass
class Routings:
    """What the routers of a pass chose, in the order of the layers."""

    layers: list[Routing] = field(default_factory=list)


@contextmanager
def record_routing(model: nn.Module) -> Iterator[Routings]:
    """Record the choices of every router of a model inside the block."""
    routings = Routings()

    def hook(name: str) -> Any:
        def keep(module: nn.Module, inputs: tuple[Any, ...], routed: Routed) -> None:
            order = routed.gates.argsort(-1, descending=True)
            experts, gates = routed.experts.gather(1, order), routed.gates.gather(1, order)
            routings.layers.append(Routing(name, experts.cpu(), gates.float().cpu()))

        return keep

    with hooked((module, hook(name)) for name, module in model.named_modules() if isinstance(module, Router)):
        yield routings


def expert_panels(routings: Routings, labels: dict[str, tuple[Sequence[str], Sequence[int]]]) -> list[Panel]:
    """Return a panel for each stack with routers: a row for each layer, the expert of each token as text.

    `labels` has the labels and indices of the tokens on display by stack.
    """
    panels = []
    for stack, (tokens, shown) in labels.items():
        layers = [layer for layer in routings.layers if layer.name.split(".")[0] == stack]
        if not layers:
            continue
        gates = [[float(layer.gates[i, 0]) for i in shown] for layer in layers]
        texts = [["+".join(map(str, layer.experts[i].tolist())) for i in shown] for layer in layers]
        panels.append(
            heat_panel(
                f"Experts of the {stack}",
                rows=[_layer_label(layer.name) for layer in layers],
                columns=tokens,
                values=gates,
                texts=texts,
                note="The experts that each token was sent to, the one with the largest gate first. The shade is that gate.",
            )
        )
    return panels


def _layer_label(name: str) -> str:
    number = next((part for part in name.split(".") if part.isdigit()), "")
    return f"layer {number}" if number else name
