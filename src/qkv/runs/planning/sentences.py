"""Describe layouts in sentences for `qkv train` and `qkv cost --plan`: why the best was chosen, and alternatives."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.spec import counted
from ...nn.cost.plan.search import MEASURABLE, RankPlan
from ...nn.cost.plan.step import Machine


def why(plans: Sequence[RankPlan]) -> str:
    """Return why the first layout of a search is the best."""
    if len(plans) == 1:
        return "the only one that fits"
    fastest = min(plans, key=lambda one: one.step.seconds)
    among = f"of {counted(len(plans), 'layout')} that fit into memory"
    if fastest is plans[0]:
        return f"the fastest {among}"
    return f"the simplest {among} within {MEASURABLE:.0%} of the fastest, which is {fastest.layout}"


def step_of(plan: RankPlan) -> str:
    """Return the time of a step and the part that takes most of it."""
    step = plan.step
    share = step.parts[step.bound] / step.seconds
    return f"{seconds(step.seconds)} a step, bound by {step.bound} ({share:.0%} of it)"


def bytes_of(plan: RankPlan, where: Machine) -> str:
    """Return the memory of the fullest rank by part, and the memory of the device."""
    held = plan.memory
    named = {
        "weights": held.weights,
        "gradients": held.gradients,
        "optimizer": held.optimizer,
        "activations": held.activations + held.gathered + held.logits,
    }
    parts = ", ".join(f"{name} {size_of(size)}" for name, size in named.items())
    return f"{size_of(held.needed)} of {size_of(where.device.memory)} ({parts})"


def not_fitting(plan: RankPlan, where: Machine) -> str:
    """Return which moment besides steps needs more memory than a device has, why, and what to do."""
    moment = plan.fails(where)
    need, has = size_of(plan.moments[moment]), size_of(where.device.memory)
    if moment in ("evaluation", "delivery"):
        alone = plan.layout.zero == 3 and plan.layout.tensor * plan.layout.expert * plan.layout.pipeline == 1
        instead = "" if alone else "ZeRO 3 without tensor, expert and pipeline, which gathers one block at a time, "
        return (
            f"{plan.layout}: an evaluation gathers all parameters on every rank, for which each needs {need} of {has}; take "
            f"{instead}a smaller model, or devices with more memory"
        )
    return f"{plan.layout}: the {moment} needs {need} on a rank, which has {has}; divide the model over more ranks"


def best_of(plans: Sequence[RankPlan], best: RankPlan) -> str:
    """Return the next best layouts and how much longer their steps take."""
    return "Next best: " + "; ".join(f"{one.layout} ({against(one, best)})" for one in plans) + "."


def against(one: RankPlan, best: RankPlan) -> str:
    """Return how much slower a layout is than the best, and which part slows it most."""
    slower = one.step.seconds / best.step.seconds - 1
    if abs(slower) < MEASURABLE:
        return f"{slower:+.1%}, no difference that could be measured"
    before = best.step.parts
    longer = {name: size - before.get(name, 0.0) for name, size in one.step.parts.items()}
    most = max(longer, key=lambda name: longer[name])
    return f"{slower:+.0%}, most of it {most}"


def size_of(size: float) -> str:
    """Format a number of bytes in GB, MB or kB."""
    if size >= 1e9:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def seconds(time: float) -> str:
    """Format a time in s, ms or µs."""
    for unit, one in (("s", 1.0), ("ms", 1e-3)):
        if time >= one:
            return f"{time / one:.3g} {unit}"
    return f"{time * 1e6:.3g} µs" if time else "0"
