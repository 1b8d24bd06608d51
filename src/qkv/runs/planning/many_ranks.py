"""What the planner is asked: a recipe's or a preset's model, batch and layout on many ranks (`qkv cost --plan`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...core.spec import brief, nearest
from ...nn.cost.accelerators import Accelerator
from ...nn.cost.images import image_tokens
from ...nn.cost.plan.execution import QKV, QKV_FP32, Execution, kernels, on_cpu
from ...nn.cost.plan.layout import AXES, RankLayout, Recompute, check
from ...nn.cost.plan.network import Network, network
from ...nn.cost.plan.rules import TrainedBy, chunks_of
from ...nn.cost.plan.step import Machine
from ...nn.cost.plan.tracked import tracked
from ...nn.cost.plan.work import ModelWork, work
from ...nn.layers.lora import LoRA
from ...nn.models.base import ModelSpec
from ...training.parallel.scale import Scale
from ..recipes.recipe import Recipe
from .batch_shape import allowed

TOKENS = 1 << 22  # of a step, for a model without a recipe: about four million, as Llama 3 begins with
LENGTH = 8192


@dataclass(frozen=True)
class RankQuestion:
    """A model, the machine for it, and the rows of a step; a layout and a number of microbatches if they are given."""

    model: ModelWork
    machine: Machine
    ranks: int
    batch: int
    layout: RankLayout | None = None


def trained_by(recipe: Recipe, model: ModelWork, where: Machine) -> tuple[ModelWork, Machine]:
    """The model and the machine with the rules of a recipe's optimizer and objective, the optimizer's state, and how the
    model is made."""
    optimizer, objective = recipe.training.optimizer, recipe.objective
    by = TrainedBy(optimizer.kind, optimizer.elementwise, objective.kind, objective.single_pass)
    layers, tables = optimizer.state_bytes
    known = recipe.adapter is None or type(recipe.adapter).adapt is LoRA.adapt
    begins_whole = recipe.model.begins_whole or not known
    in_parts = recipe.adapter is None  # which is merged into whole weights afterwards
    how = replace(where.how, optimizer=layers, tables=tables, begins_whole=begins_whole, in_parts=in_parts)
    return replace(model, trained_by=by), replace(where, how=how)


def machine(
    hardware: Accelerator,
    described: str | Mapping[str, Any] | Network | None,
    precision: str = "auto",
    compiled: bool = False,
) -> Machine:
    """The devices, their network, and how qkv trains on them. Raises ValueError for an unknown network."""
    narrow = "bf16" in hardware.flops if precision == "auto" else precision != "fp32"
    joined = described if isinstance(described, Network) else network(described, hardware.name)
    how = replace(QKV if narrow else QKV_FP32, compiled=compiled)
    return Machine(hardware, joined, kernels(hardware.name), how if joined.gpus else on_cpu(how))


def of_preset(
    name: str, spec: ModelSpec, where: Machine, ranks: int, length: int | None, batch: int | None, layout: str | None
) -> RankQuestion:
    """Ask for a model without a recipe: rows of 8,192 tokens, or its context, and about four million tokens a step."""
    tokens = image_tokens(spec) or length or min(LENGTH, spec.max_positions or LENGTH)
    model = _work(name, spec, tokens, tokens if spec.is_encoder_decoder else 0, where.how)
    rows = batch or ranks * max(1, round(TOKENS / model.tokens / ranks))
    return RankQuestion(model, where, ranks, rows, _layout(layout, model, ranks, rows))


def of_recipe(
    recipe: Recipe, where: Machine, ranks: int, length: int | None, batch: int | None, layout: str | None
) -> RankQuestion:
    """Ask for a recipe's model, the batch of its steps (full rows of the longest allowed length), and its `scale`."""
    spec = recipe.spec()
    shape = allowed(recipe.batching, spec.is_encoder_decoder)
    model = _work(recipe.name, spec, length or shape.length, length or shape.source if shape.source else 0, where.how)
    model, where = trained_by(recipe, model, where)
    rows = batch or shape.rows * recipe.training.accumulate
    own = _layout(layout, model, ranks, rows)
    if own is None and recipe.scale != Scale(timeout=recipe.scale.timeout) and not recipe.scale.auto:
        own = of_scale(recipe.scale, model, ranks, rows, recipe.training.accumulate, recipe.training.recompute)
    return RankQuestion(model, where, ranks, rows, own)


def of_scale(
    scale: Scale, model: ModelWork, ranks: int, rows: int, microbatches: int, recompute: Recompute = "none"
) -> RankLayout:
    """The layout of a recipe's `scale` for some ranks, with `rows` rows a step. Raises ValueError if they don't fit."""
    sizes = scale.sizes(ranks)
    layout = RankLayout(
        *sizes,
        zero=scale.stage,
        microbatches=microbatches,
        recompute=recompute,
        schedule=scale.pipeline_schedule,
        chunks=chunks_of(scale.pipeline_schedule),
        attention=scale.context_attention,
    )
    check(layout, model)
    return replace(layout, rows=max(1, round(rows / layout.replicas / microbatches)))


def _work(name: str, spec: ModelSpec, length: int, source: int, how: Execution) -> ModelWork:
    if spec.max_positions is not None and length > spec.max_positions:
        raise ValueError(
            f"{length:,} tokens are more than {name}'s context of {spec.max_positions:,}; give a smaller --length, or a "
            "longer context, as by max_positions=…"
        )
    return tracked(work(name, spec, length, source), spec, source, how)


def _layout(text: str | None, model: ModelWork, ranks: int, batch: int) -> RankLayout | None:
    """Read `tensor=8,pipeline=2,zero=3`. Raises ValueError for anything else, and for a layout that does not fit."""
    if text is None:
        return None
    known = (*AXES, "zero", "microbatches", "recompute")
    values: dict[str, Any] = {}
    for word in text.replace(" ", ",").split(","):
        key, _, value = word.partition("=")
        if key not in known:
            raise ValueError(
                f"--layout has no {brief(key)}; {nearest(key, known)}, as in --layout data=8,tensor=8,zero=1"
            )
        kinds = ("none", "alternate", "blocks")
        if key == "recompute" and value not in kinds:
            raise ValueError(f"recompute of --layout is {', '.join(kinds[:-1])} or {kinds[-1]}, not {brief(value)}")
        if key != "recompute" and not value.isdecimal():
            raise ValueError(f"{key} of --layout is a number, not {brief(value)}")
        if key in values:
            raise ValueError(f"{key} is given twice in --layout; give it once")
        values[key] = value if key == "recompute" else int(value)
    if values.get("zero", 0) > 3 or 0 in [values.get(axis, 1) for axis in AXES]:
        raise ValueError("axes of --layout are at least 1, and zero is 0, 1, 2 or 3")
    values.setdefault("zero", 3 if values.get("shard", 1) > 1 and values.get("pipeline", 1) == 1 else 0)
    if values.get("shard", 1) > 1 and values["zero"] == 0:
        values["zero"] = 1
    layout = RankLayout(**values)
    if "data" not in values and layout.ranks and ranks % layout.ranks == 0:
        layout = replace(layout, data=ranks // layout.ranks)
    check(layout, model, ranks, batch)
    rows = batch // layout.replicas
    many = values.get("microbatches") or (min(rows, 4 * layout.pipeline) if layout.pipeline > 1 else 1)
    while rows % many:
        many -= 1
    return replace(layout, microbatches=many, rows=rows // many)
