"""Search the layouts of a model on a number of ranks that fit into memory, the fastest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....core.spec import counted
from ..accelerators import THIS
from .layout import AXES, RankLayout, Recompute, check, check_model
from .rank_memory import RankMemory, can_evaluate_in_parts, memory, moments
from .rules import ContextAttention, PipelineSchedule, chunks_of, divisors
from .step import Machine, StepSeconds, step
from .work import ModelWork

TOKENS = 1024  # of a row that context parallelism leaves to a rank at least
MICROBATCHES = 256
FEW = 64  # replicas, up to which all numbers of shards are tried
MEASURABLE = 0.03  # a layout has to be faster than a simpler one by this fraction of a step to be preferred
# GPipe is as fast as 1F1B and keeps more activations.
SCHEDULES: tuple[PipelineSchedule, ...] = ("1f1b", "interleaved-1f1b", "zb-h1")
MOST_RANKS = 1 << 16  # up to which more ranks are tried where nothing fits


@dataclass(frozen=True)
class RankPlan:
    """A layout with its predicted memory and time.

    in_parts: evaluations gather one block at a time, as the whole model does not fit.
    """

    layout: RankLayout
    step: StepSeconds
    memory: RankMemory
    moments: Mapping[str, float]
    in_parts: bool = False

    def fits(self, machine: Machine) -> bool:
        """Whether a step fits into memory."""
        return self.memory.needed <= machine.device.memory

    def fails(self, machine: Machine) -> str:
        """The moment that needs the most memory if the layout doesn't fit, or an empty string."""
        most = max(self.moments, key=lambda name: self.moments[name])
        return most if self.moments[most] > machine.device.memory else ""


def plan(model: ModelWork, layout: RankLayout, machine: Machine, held: RankMemory | None = None) -> RankPlan:
    """Predict one layout. held: its memory, if it is known."""
    held = held or memory(model, layout, machine.how)
    found = RankPlan(layout, step(model, layout, machine), held, moments(model, layout, machine.how, held))
    if found.fails(machine) in ("evaluation", "delivery") and can_evaluate_in_parts(layout, machine.how):
        return replace(found, moments=moments(model, layout, machine.how, held, in_parts=True), in_parts=True)
    return found


def search(
    model: ModelWork,
    machine: Machine,
    ranks: int,
    batch: int,
    *,
    recompute: tuple[Recompute, ...] = ("none", "alternate", "blocks"),
    microbatches: int | None = None,
) -> list[RankPlan]:
    """Return the layouts of `batch` rows per step that fit into memory: the best first, the others by time. Of layouts with
    equal axes only the fastest is kept. The best is the simplest layout that is not measurably slower than the fastest.

    microbatches: the number of batches of a step, if it is given. Raises ValueError if nothing fits, with the layout that
    needs the least memory, and the number of ranks on which one fits.
    """
    best: dict[tuple[int, ...], RankPlan] = {}
    fitted: set[tuple[int | str, ...]] = set()
    smallest: tuple[float, RankLayout] | None = None
    for layout in layouts(model, machine, ranks, batch, recompute, microbatches):
        key = (*(layout.size(axis) for axis in AXES), layout.zero)
        if layout.pipeline == 1 and (*key, layout.recompute) in fitted:
            continue  # with fewer microbatches, which can't be slower
        held = memory(model, layout, machine.how)
        if held.needed > machine.device.memory:
            smallest = min(smallest or (held.needed, layout), (held.needed, layout), key=lambda pair: pair[0])
            continue
        fitted.add((*key, layout.recompute))
        found = plan(model, layout, machine, held)
        if key not in best or found.step.seconds < best[key].step.seconds:
            best[key] = found
    if best:
        return _ordered(list(best.values()))
    if smallest is None:
        raise ValueError(
            f"no layout divides {counted(batch, 'row')} of {model.name} over {counted(ranks, 'rank')}; give a --batch that "
            f"{ranks} divides"
        )
    raise ValueError(_too_small(model, machine, ranks, batch, smallest))


def _ordered(plans: list[RankPlan]) -> list[RankPlan]:
    plans = sorted(plans, key=lambda one: one.step.seconds)
    close = [one for one in plans if one.step.seconds <= (1 + MEASURABLE) * plans[0].step.seconds]
    first = min(close, key=lambda one: (*simplicity(one.layout), one.step.seconds))
    return [first, *(one for one in plans if one is not first)]


def simplicity(layout: RankLayout) -> tuple[int, ...]:
    """Return a sort key that is smaller for simpler layouts: replicas, then ZeRO, then axes that divide the model."""
    model = sum(layout.size(axis) > 1 for axis in ("expert", "context", "tensor", "pipeline"))
    return model, layout.zero, layout.data > 1 and layout.shard > 1, layout.recompute != "none", layout.pipeline


def _too_small(model: ModelWork, machine: Machine, ranks: int, batch: int, smallest: tuple[float, RankLayout]) -> str:
    needed, layout = smallest
    text = (
        f"{model.name} does not fit on {_devices(ranks, machine)}: the layout that needs the least memory ({layout}, "
        f"recompute {layout.recompute}) takes {_gb(needed)} of {_gb(machine.device.memory)}"
    )
    more = ranks * 2
    while more <= MOST_RANKS and machine.device.name != THIS:  # whose ranks share one memory
        rows = math.lcm(batch, more)
        for one in layouts(model, machine, more, rows, ("blocks",), None):
            if memory(model, one, machine.how).needed <= machine.device.memory:
                return f"{text}; {one} fits on {more}, with a batch of {counted(one.batch, 'row')}"
        more *= 2
    return f"{text}; take shorter rows or a smaller model"


def nearest(model: ModelWork, given: RankPlan, machine: Machine, batch: int) -> ValueError:
    """The error for a layout that does not fit into memory: predicted bytes, and the layout nearest to it that fits."""
    layout, needed = given.layout, given.memory
    parts = f"weights {_gb(needed.weights)}, gradients {_gb(needed.gradients)}, optimizer {_gb(needed.optimizer)}"
    text = (
        f"{layout} of {model.name} takes {_gb(needed.needed)} on a rank ({parts}, activations {_gb(needed.activations)}), "
        f"and {_devices(1, machine)} has {_gb(machine.device.memory)}"
    )
    try:
        fitting = search(model, machine, layout.ranks, batch)
    except ValueError as error:
        return ValueError(f"{text}; {error}")
    near = min(fitting, key=lambda one: (_distance(layout, one.layout), one.step.seconds))
    more = f" with recompute {near.layout.recompute}" if near.layout.recompute != layout.recompute else ""
    return ValueError(f"{text}; the nearest that fits is {near.layout}{more}, with {_gb(near.memory.needed)}")


def _distance(a: RankLayout, b: RankLayout) -> float:
    return sum(abs(math.log2(a.size(axis) / b.size(axis))) for axis in AXES) + abs(a.zero - b.zero) / 2


def layouts(
    model: ModelWork,
    machine: Machine,
    ranks: int,
    batch: int,
    recompute: tuple[Recompute, ...],
    microbatches: int | None = None,
) -> Iterator[RankLayout]:
    """The layouts that fit ranks, model and batch. `tensor` stays inside a node."""
    for tensor in divisors(ranks):
        if tensor > machine.network.ranks or (tensor > 1 and not _allowed(model, "tensor", tensor)):
            continue
        for axes in _others(model, ranks // tensor, machine.network.ranks // tensor):
            layout = replace(axes, tensor=tensor)
            if batch % layout.replicas:
                continue
            rows = batch // layout.replicas
            for many in [microbatches] if microbatches else divisors(rows):
                few = many < layout.pipeline <= rows and not microbatches
                if rows % many or many > MICROBATCHES or few:
                    continue
                sized = replace(layout, microbatches=many, rows=rows // many)
                for one in _methods(model, sized):
                    for again in recompute:
                        yield replace(one, recompute=again)


def _methods(model: ModelWork, layout: RankLayout) -> Iterator[RankLayout]:
    """Yield the layout with each pipeline schedule and each method of context attention that it can have."""
    attentions: tuple[ContextAttention, ...] = ("ring",)
    if layout.context > 1 and any(layer.apart == "keys" for layer in model.kinds):
        attentions = ("ring", "all-to-all", "all-gather")
    for schedule in SCHEDULES if layout.pipeline > 1 else SCHEDULES[:1]:
        one = replace(layout, schedule=schedule, chunks=chunks_of(schedule))
        if allowed(model, one):
            yield from (replace(one, attention=attention) for attention in attentions)


def _others(model: ModelWork, ranks: int, node: int) -> Iterator[RankLayout]:
    """Sizes of the axes other than `tensor`, and stages of ZeRO. Of many replicas only one, a `node`'s and all are
    tried as shards."""
    for context in divisors(ranks):
        if context > 1 and (model.length // context < TOKENS or not _allowed(model, "context", context)):
            continue
        for expert in divisors(ranks // context):
            if expert > 1 and not _allowed(model, "expert", expert):
                continue
            for pipeline in divisors(ranks // context // expert):
                if pipeline > 1 and not _allowed(model, "pipeline", pipeline):
                    continue
                rest = ranks // context // expert // pipeline
                inside = max((n for n in divisors(rest) if n * context * expert <= node), default=1)
                for shard in divisors(rest) if rest <= FEW else sorted({1, inside, rest}):
                    for zero in (0,) if shard == 1 else (1, 2, 3):
                        yield RankLayout(pipeline, rest // shard, shard, expert, context, zero=zero)


def _allowed(model: ModelWork, axis: str, size: int) -> bool:
    changes: dict[str, Any] = {axis: size}
    try:
        check_model(replace(RankLayout(), **changes), model)
    except ValueError:
        return False
    return True


def allowed(model: ModelWork, layout: RankLayout) -> bool:
    """Whether a layout can be trained."""
    try:
        check(layout, model)
    except ValueError:
        return False
    return True


def _devices(number: int, machine: Machine) -> str:
    """Return a number of devices in words."""
    if machine.device.name == THIS:
        return f"{'a rank' if number == 1 else counted(number, 'rank')} of this machine"
    return machine.device.name if number == 1 else f"{number} × {machine.device.name}"


def _gb(size: float) -> str:
    if size < 1e9:
        return f"{size / 1e6:,.0f} MB"
    return f"{size / 1e9:,.1f} GB" if size < 1e12 else f"{size / 1e12:,.1f} TB"
