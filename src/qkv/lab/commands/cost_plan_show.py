"""Tables, reasons and charts of `qkv cost --plan`, `--simulate` and `--published`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...cli.say import console

if TYPE_CHECKING:
    from ...nn.cost.plan.published import PublishedComparison
    from ...nn.cost.plan.search import RankPlan
    from ...nn.cost.plan.simulate import FastestLayout
    from ...runs.planning.many_ranks import RankQuestion


@contextmanager
def progress(total: int) -> Iterator[Callable[[Any], None]]:
    """A progress bar on standard error if it is a terminal; the value advances it."""
    from rich.progress import Progress

    shown = console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("layouts", total=total)
        yield lambda _: bar.advance(task)


def show_plans(plans: Sequence[RankPlan], question: RankQuestion, top: int) -> None:
    """Print the layouts, and of the first one why, its memory and the parts of its step."""
    model, machine, best = question.model, question.machine, plans[0]
    _line(
        f"{model.name}: {model.parameters:,} parameters on {question.ranks:,} × {machine.device.name} "
        f"({machine.network.name}), "
        f"{question.batch:,} rows of {model.tokens:,} tokens a step, in {machine.precision}"
        + (", compiled" if machine.how.compiled else "")
    )
    table = _table("layout", "batches", "again", "memory", "step", "tokens/s", "MFU", "bound by")
    for one in plans[:top]:
        layout, step = one.layout, one.step
        many = f"{layout.microbatches} × {layout.rows}"
        rates = (f"{step.tokens_per_second:,.0f}", f"{step.mfu:.1%}")
        table.add_row(
            str(layout), many, layout.recompute, _gb(one.memory.needed), _time(step.seconds), *rates, step.bound
        )
    console().print(table, highlight=False)
    _line("batches: microbatches × rows; again: what is computed again in backward; memory and tokens/s of a GPU")
    if len(plans) > top:
        _line(f"{len(plans) - top:,} more fit; --top shows them.")
    _line("")
    for reason in why(plans, question):
        _line(reason)
    _line(f"In qkv: {best.layout.settings() or 'no setting, one rank'}")
    _line(f"\n{memory_line(best, question)}")
    _show_parts(best)


def why(plans: Sequence[RankPlan], question: RankQuestion) -> list[str]:
    """Sentences that say why the first layout is the best."""
    from ...nn.cost.plan.layout import RankLayout
    from ...nn.cost.plan.rank_memory import memory
    from ...runs.planning.sentences import against, step_of
    from ...runs.planning.sentences import why as reason_for

    best, device = plans[0], question.machine.device
    replicas = RankLayout(data=question.ranks, recompute="blocks")
    alone = memory(question.model, replicas, question.machine.how).needed
    fit = "would fit" if alone <= device.memory else "don't fit"
    reasons = [f"Plain replicas {fit}: one row, recomputed, takes {_gb(alone)} of {_gb(device.memory)}."]
    if question.layout is not None:
        reasons.append("This layout was given; leave it out to compare it with others.")
    else:
        reasons.append(f"{best.layout}: {reason_for(plans)}.")
    others = [other for other in plans[1:] if _kind(other) != _kind(best)]
    if others:
        reasons.append(f"The next other kind is {others[0].layout} ({against(others[0], best)}).")
    return [*reasons, f"Predicted: {step_of(best)}.", *_cautions(best, question)]


def _cautions(best: RankPlan, question: RankQuestion) -> list[str]:
    """Sentences on what does not fit besides steps, on experts, and on what the prediction was never compared with."""
    from ...nn.cost.plan.published import extrapolated
    from ...runs.planning.sentences import not_fitting

    model, machine = question.model, question.machine
    lines = [f"Warning: {not_fitting(best, machine)}"] if best.fails(machine) else []
    if best.layout.expert > 1:
        factor = f"{machine.how.imbalance:g}"
        lines.append(f"The fullest expert rank is taken to get {factor} × the mean of tokens; --imbalance changes it.")
    if beyond := extrapolated(model, best.layout, machine):
        lines.append(f"Extrapolated: the model was compared with no published run with {', '.join(beyond)}.")
    return lines


def _kind(plan: RankPlan) -> tuple[int, ...]:
    layout = plan.layout
    return layout.tensor, layout.pipeline, layout.context, layout.expert, layout.zero


def memory_line(plan: RankPlan, question: RankQuestion) -> str:
    """The memory of the fullest rank, by part."""
    held, device = plan.memory, question.machine.device
    named = {
        "weights": held.weights,
        "gradients": held.gradients,
        "optimizer": held.optimizer,
        "gathered and copied": held.gathered,
        "activations": held.activations,
        "logits": held.logits,
    }
    parts = ", ".join(f"{name} {_gb(size)}" for name, size in named.items() if size)
    where = f" (stage {plan.memory.stage + 1} of {plan.layout.pipeline})" if plan.layout.pipeline > 1 else ""
    text = f"Memory of the fullest GPU{where}: {_gb(held.needed)} of {_gb(device.memory)}: {parts}; and what libraries need"
    others = ", ".join(f"{name} {_gb(size)}" for name, size in plan.moments.items())
    return f"{text}\nBesides steps: {others}"


def _show_parts(plan: RankPlan) -> None:
    step = plan.step
    table = _table("a step", "time", "of the step", "hidden")
    for name, seconds in step.compute.items():
        table.add_row(name, _time(seconds), f"{seconds / step.seconds:.1%}", "")
    for one in step.communication:
        name = {"shard": "ZeRO", "data": "gradient"}.get(one.kind, one.kind)
        exposed = f"{one.exposed / step.seconds:.1%}"
        table.add_row(f"{name} communication, exposed", _time(one.exposed), exposed, _time(one.hidden))
    if step.bubble:
        table.add_row("pipeline bubble", _time(step.bubble), f"{step.bubble / step.seconds:.1%}", "")
    table.add_section()
    table.add_row("total", _time(step.seconds), "", "")
    console().print(table, highlight=False)


def show_points(points: Sequence[FastestLayout], question: RankQuestion) -> None:
    """Print the points of a simulation."""
    model, machine = question.model, question.machine
    _line(
        f"{model.name} on {machine.device.name} ({machine.network.name}), rows of {model.tokens:,} tokens, in "
        f"{machine.precision}"
    )
    table = _table("scaling", "GPUs", "rows", "layout", "step", "MFU", "bound by", "waiting for")
    for point in points:
        first = (point.kind, f"{point.ranks:,}", f"{point.batch:,}")
        if point.plan is None:
            table.add_row(*first, "nothing fits", *[""] * 4)
            continue
        step = point.plan.step
        waits = f"{step.waiting:.1%} {step.waits_for}" if step.waits_for else ""
        table.add_row(*first, str(point.plan.layout), _time(step.seconds), f"{step.mfu:.1%}", step.bound, waits)
    console().print(table, highlight=False)
    _line("waiting for: what takes most of the time in which nothing is computed, with that time's share of a step.")
    for kind in ("weak", "strong"):
        if reason := _limit([point for point in points if point.kind == kind]):
            _line(reason)


def _limit(points: Sequence[FastestLayout]) -> str:
    """Return a sentence on where MFU is highest and which part of a step grows most up to the last point."""
    found = [(point, point.plan.step) for point in points if point.plan is not None]
    if len(found) < 2:
        return ""
    (best, fast), (last, slow) = max(found, key=lambda pair: pair[1].mfu), found[-1]
    kind = f"{last.kind.capitalize()} scaling"
    if fast.mfu - slow.mfu < 0.01:
        return f"{kind} holds to {last.ranks:,} GPUs, bound by {slow.bound}."
    more = {name: size / slow.seconds - fast.parts.get(name, 0.0) / fast.seconds for name, size in slow.parts.items()}
    most = max(more, key=lambda name: more[name])
    return (
        f"{kind} falls from {fast.mfu:.1%} on {best.ranks:,} GPUs to {slow.mfu:.1%} on {last.ranks:,}, where {most} takes "
        f"{slow.parts[most] / slow.seconds:.0%} of a step."
    )


def drawn(points: Sequence[FastestLayout], question: RankQuestion, suffix: str) -> str:
    """Charts of MFU and step time by number of GPUs, for both kinds of scaling."""
    from ...look.chart import Series, line_chart
    from .cost_sweep import charts_as

    charts = []
    title = f"{question.model.name} on {question.machine.device.name}"
    quantities: list[tuple[str, Callable[[Any], float], bool]] = [
        (f"MFU of {title}, %", lambda step: 100 * step.mfu, False),
        (f"Seconds of a step, {title}", lambda step: step.seconds, True),
        ("Time in which nothing is computed, % of a step", lambda step: 100 * step.waiting, False),
    ]
    for name, value, log in quantities:
        lines = [
            Series(
                f"{kind} scaling",
                [(point.ranks, value(point.plan.step)) for point in points if point.kind == kind and point.plan],
                dots=True,
            )
            for kind in ("weak", "strong")
        ]
        charts.append(line_chart(name, lines, x_label="GPUs", zero=not log, log=log, log_x=True))
    return charts_as([chart for chart in charts if chart], suffix, "Scaling")


def show_published(rows: Sequence[PublishedComparison]) -> None:
    """Print published runs beside their predictions."""
    from ...nn.cost.plan.published import TOLERANCE

    table = _table("run", "published", "predicted", "error", "memory", "published")
    for row in rows:
        run = row.published
        star = " *" if run.calibrated else ""
        gib = "" if run.memory_gib is None else f"{run.memory_gib:.1f} GiB"
        table.add_row(
            run.name + star,
            f"{run.value:,.6g} {run.unit}",
            f"{row.predicted:,.4g}",
            f"{row.error:+.1%}",
            f"{row.memory.needed / 2**30:.1f}",
            gib,
        )
    console().print(table, highlight=False)
    held_out = [row for row in rows if not row.published.calibrated]
    within = sum(row.within for row in held_out)
    _line(f"* calibrated. Of the other {len(held_out)}, {within} are within {TOLERANCE:.0%}.")
    for row in rows:
        if not row.within:
            _line(f"Beyond {TOLERANCE:.0%}: {row.published.name} ({row.error:+.1%})")


def _table(*headers: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for header in headers:
        left = header in ("layout", "bound by", "run", "scaling", "a step", "again", "waiting for")
        table.add_column(
            header, justify="left" if left else "right", no_wrap=header not in ("layout", "run", "waiting for")
        )
    return table


def _line(text: str) -> None:
    console().print(text, highlight=False, markup=False, soft_wrap=True)


def _gb(size: float) -> str:
    from ...runs.planning.sentences import size_of

    return size_of(size)


def _time(seconds: float) -> str:
    from ...runs.planning import sentences

    return sentences.seconds(seconds)
