"""The layout of a run on several ranks: chosen for `scale: auto`, checked against memory, and described before training."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

import torch

from ...core.spec import counted
from ...nn.cost.accelerators import KNOWN, Accelerator
from ...nn.cost.accelerators import measured as measured_device
from ...nn.cost.flops import BatchShape
from ...nn.cost.hardware import available, usable_cores
from ...nn.cost.plan.layout import AXES, RankLayout
from ...nn.cost.plan.network import Network, measured
from ...nn.cost.plan.search import RankPlan, nearest, plan, search
from ...nn.cost.plan.step import Machine
from ...nn.cost.plan.tracked import Kind, tracked
from ...nn.cost.plan.work import ModelWork, work
from ...nn.models.base import ModelSpec
from ...training.parallel.scale import Scale
from ...training.parallel.team import Team
from ..recipes.recipe import Recipe
from .many_ranks import machine, of_scale, trained_by
from .sentences import best_of, bytes_of, not_fitting, step_of, why

NEXT = 2  # layouts that are named besides the best


def laid_out(
    recipe: Recipe,
    spec: ModelSpec,
    shape: BatchShape,
    ranks: int,
    device: torch.device,
    joined: Network | None = None,
    hosts: int = 1,
) -> tuple[Scale, list[str], bool]:
    """Return the scale of a run, chosen if it is `auto`; sentences: its layout and why, predicted memory, time of a step and
    what binds it, and the next best layouts; and whether evaluations gather one block at a time, as more does not fit.

    joined: the network, if it was measured. hosts: how many machines the ranks are on; ranks of a machine share its memory.

    The batches of a step and recomputation stay as in the recipe. Raises ValueError if the axes don't divide the model,
    or if the layout, or for `auto` every layout, needs more memory than a rank has.
    """
    training, scale = recipe.training, recipe.scale
    where = machine(
        _device(device, ranks // hosts, training.precision), joined, training.precision, training.compile is True
    )
    kinds: tuple[Kind, ...] = ("none",) if training.recompute == "none" else ("none", "blocks")
    model = tracked(work(recipe.name, spec, shape.length, shape.source), spec, shape.source, where.how, kinds)
    model, where = trained_by(recipe, model, where)
    rows = training.accumulate * math.ceil(shape.rows / ranks) * ranks
    if not scale.auto:
        found = plan(model, of_scale(scale, model, ranks, rows, training.accumulate, training.recompute), where)
        if not found.fits(where):
            raise nearest(model, found, where, rows)
        if found.fails(where):
            raise ValueError(not_fitting(found, where))
        return scale, _described([found], where, ""), found.in_parts
    possible = [one for one in _search(recipe, model, where, ranks, rows) if _runs(one, recipe)]
    plans = [one for one in possible if not one.fails(where)]
    if possible and not plans:
        raise ValueError(not_fitting(min(possible, key=lambda one: max(one.moments.values())), where))
    if not plans:
        raise ValueError(
            f"scale: auto found no layout of {recipe.name} for {counted(ranks, 'rank')}; give the axes yourself"
        )
    return scale_of(plans[0].layout, scale), _described(plans, where, why(plans)), plans[0].in_parts


def scale_of(layout: RankLayout, given: Scale) -> Scale:
    """Return the `scale` of a layout, with the timeout of the `given` one."""
    return Scale(
        **{axis: layout.size(axis) for axis in AXES},
        zero=layout.zero or None,
        pipeline_schedule=layout.schedule,
        context_attention=layout.attention,
        timeout=given.timeout,
    )


def lay_out(members: Team, recipe: Recipe, spec: ModelSpec, shape: BatchShape) -> tuple[Team, list[str]]:
    """Choose the layout of several ranks if it is `auto`, on rank 0 for all. Returns the team, and notes on the layout."""
    if members.ranks.size == 1:
        return members, []
    joined = measured(members.ranks) if members.device.type == "cpu" else None
    hosts = len(set(members.ranks.gather(os.environ.get("GROUP_RANK", "0"))))
    chosen: tuple[Scale, list[str], bool] | ValueError | None = None
    if members.leads:
        try:
            chosen = laid_out(recipe, spec, shape, members.ranks.size, members.device, joined, hosts)
        except ValueError as error:
            chosen = error
    else:
        import_module("torch._dynamo")  # for about a second; rank 0 imports it in `laid_out`
    told = members.ranks.broadcast(chosen)
    if isinstance(told, ValueError):
        raise told
    assert told is not None  # rank 0 has chosen
    scale, notes, in_parts = told
    return members.laid_out(scale, in_parts), notes


def _search(recipe: Recipe, model: ModelWork, where: Machine, ranks: int, rows: int) -> list[RankPlan]:
    training = recipe.training
    return search(model, where, ranks, rows, recompute=(training.recompute,), microbatches=training.accumulate)


def _runs(found: RankPlan, recipe: Recipe) -> bool:
    """Whether qkv can train a recipe so: what is refused or untested is left out of the choice."""
    layout = found.layout
    model_axes = (layout.tensor, layout.pipeline, layout.context, layout.expert)
    return model_axes == (1, 1, 1, 1) or (recipe.task is None and recipe.adapter is None)


def _described(plans: Sequence[RankPlan], where: Machine, reason: str) -> list[str]:
    best = plans[0]
    lines = [
        f"Layout: {best.layout} on {counted(best.layout.ranks, 'rank')}{f': {reason}' if reason else ''}.",
        f"Predicted: {step_of(best)}; each rank needs about {bytes_of(best, where)}.",
    ]
    if best.in_parts:
        lines.append(
            "An evaluation gathers one block of the model at a time, as the whole model does not fit on a rank."
        )
    return lines + ([best_of(plans[1 : NEXT + 1], best)] if len(plans) > 1 else [])


def _device(device: torch.device, here: int, precision: str) -> Accelerator:
    """Return the accelerator of a rank, by its driver's name or measured. On CPUs, `here` ranks share its memory.

    precision: of the training. In fp32, the speed in bf16 is not measured.
    """
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device).lower()
        known = next((one for one in KNOWN.values() if one.name in name), None)
        if known is not None:
            return replace(known, memory=min(known.memory, float(available(device) or known.memory)))
    found = measured_device(torch.device(device.type), precision != "fp32")
    if device.type != "cpu":
        return found
    free = float(available(device) or found.memory)
    busy = min(1.0, usable_cores() / (here * torch.get_num_threads()))  # below 1 where ranks share cores
    flops = {name: busy * speed for name, speed in found.flops.items()}
    return replace(found, memory=free / here, bandwidth=found.bandwidth / here, flops=flops)
