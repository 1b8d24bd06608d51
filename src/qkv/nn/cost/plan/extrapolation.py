"""What a plan has that no published run has with which the planner was compared (`published.py`)."""

from __future__ import annotations

from .execution import Kernels
from .layout import RankLayout
from .published import RUNS
from .step import Machine
from .work import ModelWork


def extrapolated(model: ModelWork, layout: RankLayout, machine: Machine) -> list[str]:
    """Return in which respects a prediction goes beyond the published runs; empty if one was like it."""
    layouts = [run.layout for run in RUNS]
    same = [run for run in RUNS if run.layout.context == layout.context]
    ranks = max(one.ranks for one in layouts)
    longest = max(run.length for run in same or RUNS)
    narrowest = min(int(run.model[1].get("d_model", 4096)) for run in RUNS)
    context = f" with context={layout.context}" if layout.context > 1 and same else ""
    found = {
        f"the kernels of {machine.device.name}": machine.kernels == Kernels(),
        f"products in {machine.precision}": machine.precision != "bf16",
        f"{layout.ranks:,} ranks (at most {ranks:,})": layout.ranks > ranks,
        f"rows of {model.length:,} tokens{context} (at most {longest:,})": model.length > longest,
        f"context={layout.context}": not same,
        f"a width of {model.d_model:,} (at least {narrowest:,})": model.d_model < narrowest,
        "mixtures of experts": any(layer.n_experts for layer in model.kinds),
        "models other than language models": model.tokens != model.length or not model.outputs or not model.transformer,
        f"zero={layout.zero}": layout.zero not in {one.zero for one in layouts},
        f"the schedule {layout.schedule}": layout.pipeline > 1 and layout.schedule not in ("1f1b", "interleaved-1f1b"),
        f"recompute={layout.recompute}": layout.recompute not in {one.recompute for one in layouts},
    }
    return [what for what, beyond in found.items() if beyond]
