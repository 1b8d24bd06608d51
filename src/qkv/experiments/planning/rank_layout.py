"""The layout of a run on several ranks: chosen for `scale: auto`, and described with its predicted memory."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Literal

import torch

from ...core.spec import counted
from ...cost.accelerators import KNOWN, THIS, Accelerator, accelerator
from ...cost.flops import Shape
from ...cost.hardware import available
from ...cost.plan.layout import AXES, Layout
from ...cost.plan.search import Plan, plan, search
from ...cost.plan.step import Machine
from ...cost.plan.work import Work, work
from ...models.base import ModelSpec
from ...parallel.scale import Scale
from ...parallel.team import Team
from ...recipes.recipe import Recipe
from .many_ranks import machine, of_scale


def laid_out(recipe: Recipe, spec: ModelSpec, shape: Shape, ranks: int, device: torch.device) -> tuple[Scale, str]:
    """Return the scale of a run, chosen if it is `auto`, and a sentence with its layout and predicted memory.

    The batches of a step and recomputation stay those of the recipe. Raises ValueError if the axes don't divide the model,
    or, for `auto`, if no layout fits into memory.
    """
    training, scale = recipe.training, recipe.scale
    model = work(recipe.name, spec, shape.length, shape.source)
    where = machine(_device(device), None, training.precision, training.compile is True)
    rows = training.accumulate * math.ceil(shape.rows / ranks) * ranks
    if not scale.auto:
        found = plan(model, of_scale(scale, model, ranks, rows, training.accumulate, training.recompute), where)
        return scale, _described(found, where, "")
    plans = [one for one in _search(recipe, model, where, ranks, rows) if _runs(one, recipe)]
    if not plans:
        raise ValueError(
            f"scale: auto found no layout of {recipe.name} for {counted(ranks, 'rank')}; give the axes yourself"
        )
    best = plans[0]
    return scale_of(best.layout, scale), _described(
        best, where, f", chosen among {counted(len(plans), 'layout')} that fit"
    )


def scale_of(layout: Layout, given: Scale) -> Scale:
    """The `scale` that has a layout, with what is `given` besides."""
    return Scale(
        **{axis: layout.size(axis) for axis in AXES},
        zero=layout.zero or None,
        pipeline_schedule=layout.schedule,
        context_attention=layout.attention,
        timeout=given.timeout,
    )


def lay_out(members: Team, recipe: Recipe, spec: ModelSpec, shape: Shape) -> tuple[Team, list[str]]:
    """Choose the layout of several ranks if it is `auto`, on rank 0 for all. Returns the team, and notes on the layout."""
    if members.ranks.size == 1:
        return members, []
    chosen: tuple[Scale, str] | ValueError | None = None
    if members.leads:
        try:
            chosen = laid_out(recipe, spec, shape, members.ranks.size, members.device)
        except ValueError as error:
            chosen = error
    told = members.ranks.broadcast(chosen)
    if isinstance(told, ValueError):
        raise told
    scale, note = told
    return members.laid_out(scale), [note]


def _search(recipe: Recipe, model: Work, where: Machine, ranks: int, rows: int) -> list[Plan]:
    again = recipe.training.recompute
    kind: Literal["none", "blocks"] = "none" if again == "none" else "blocks"
    return search(model, where, ranks, rows, recompute=(kind,), microbatches=recipe.training.accumulate)


def _runs(found: Plan, recipe: Recipe) -> bool:
    """Whether qkv can train a recipe so: what is refused or untested is left out of the choice."""
    layout = found.layout
    if layout.zero == 3 and not recipe.training.optimizer.elementwise:
        return False
    model_axes = (layout.tensor, layout.pipeline, layout.context, layout.expert)
    return model_axes == (1, 1, 1, 1) or (recipe.task is None and recipe.adapter is None)


def _described(found: Plan, where: Machine, chosen: str) -> str:
    memory, layout = found.memory, found.layout
    parts = {
        "weights": memory.weights,
        "gradients": memory.gradients,
        "optimizer": memory.optimizer,
        "activations": memory.activations + memory.gathered + memory.logits,
    }
    sizes = ", ".join(f"{name} {size / 2**20:,.0f} MiB" for name, size in parts.items())
    bound = f"bound by {found.step.bound}"
    return f"Layout: {layout} on {counted(layout.ranks, 'rank')}{chosen}; each rank needs about {sizes}; {bound}."


def _device(device: torch.device) -> Accelerator:
    """The accelerator of a rank: by its driver's name, or measured; ranks of a machine share the memory of its CPU."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device).lower()
        known = next((one for one in KNOWN.values() if one.name in name), None)
        if known is not None:
            return known
    found = accelerator(THIS, torch.device(device.type))
    here = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1)
    free = available(device) or found.memory
    return replace(found, memory=float(free) / (here if device.type == "cpu" else 1))
