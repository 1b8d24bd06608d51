"""`pruning.html`: what was removed from a run, what it cost, and the curve of metrics by the share of heads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from markupsafe import Markup

from ...core.metrics.display import display_of
from ...io.directories.layout import write_text
from ...look.chart import Series, line_chart
from ...look.formatting import scaled, shown
from ...look.heatmap import heat_map, small_map
from ...look.html import render
from ...look.svg import join, readable, tag
from ...nn.pruning.redundancy import Redundancy
from ...runs.report.story import Section
from ...runs.report.table import table
from .result import PruningResult

PAGE = "pruning.html"
_LABELED = 48  # heads at most whose matrix has labels and tooltips
_DRAWN = 200  # heads at most that are drawn one by one
STAGES = {"before": "before", "pruned": "pruned", "finetuned": "fine-tuned"}
MEASURES = {
    "gradient": "The size of the gradient of the loss by a factor of each head's output, divided by the norm of its layer.",
    "ablation": "By how much the loss grows without the head.",
    "gates": "The probability that the head's trained gate is open.",
}


def write_page(result: PruningResult, sizes: Mapping[str, int], folder: Path) -> Path:
    """Write the page into a folder; `sizes` are the numbers of heads of each layer before."""
    before, after = result.parameters
    sections = [
        _results(result),
        _removed(result, sizes),
        _factorized(result),
        _importance(result),
        _curve(result),
        _until(result),
        _redundancy(result),
    ]
    page = render(
        "report.html",
        eyebrow="pruning report",
        title=result.folder.name,
        lead=f"{Path(result.source).name} {_words(result)}",
        warning=None,
        facts=[
            ("parameters", f"{after:,}", f"{before:,} before"),
            ("smaller by", f"{1 - after / before:.1%}", ""),
            ("speed", f"{result.speeds['after'] / result.speeds['before']:.2f}×", _speed(result)),
            *([("measured by", result.by, "")] if result.importance else []),
        ],
        sections=[section for section in sections if section is not None],
    )
    path = folder / PAGE
    write_text(path, page)
    return path


def _speed(result: PruningResult) -> str:
    return f"{readable(result.speeds['after'])} a second, {readable(result.speeds['before'])} before"


def _words(result: PruningResult) -> str:
    """What was removed and factorized, in words."""
    parts = []
    if result.heads:
        count = sum(map(len, result.heads.values()))
        parts.append(f"{count} attention head{'s' * (count != 1)}")
    if result.neurons:
        parts.append(f"{sum(result.neurons.values()):,} neurons")
    if result.layers:
        count = sum(map(len, result.layers.values()))
        parts.append(f"{count} layer{'s' * (count != 1)}")
    without = [f"without {' and '.join(parts)}"] if parts else []
    factorized = [f"with {len(result.ranks)} matrices of low rank"] if result.ranks else []
    return " and ".join([*without, *factorized]) or "with nothing removed"


def _results(result: PruningResult) -> Section:
    names = list(result.metrics["before"])
    rows = [
        (STAGES[stage], [shown(name, metrics[name]) if name in metrics else "" for name in names])
        for stage, metrics in result.metrics.items()
    ]
    note = f"On {result.examples:,} examples of the test split."
    return Section("Results", table("", [display_of(name).title for name in names], rows, "results"), note)


def _removed(result: PruningResult, sizes: Mapping[str, int]) -> Section | None:
    rows: list[tuple[str, list[str]]] = [
        (name, [", ".join(map(str, heads)), f"{sizes[name] - len(heads)} of {sizes[name]} heads"])
        for name, heads in result.heads.items()
    ]
    rows += [(name, [f"{count:,} neurons", ""]) for name, count in result.neurons.items()]
    rows += [(name, ["layers " + ", ".join(map(str, layers)), ""]) for name, layers in result.layers.items()]
    if not rows:
        return None
    body = table("layer", ["removed", "left"], rows, "what was removed")
    return Section("Removed", body, "Layers and heads are counted from 0.")


def _factorized(result: PruningResult) -> Section | None:
    if not result.ranks:
        return None
    rows = [
        (name, [", ".join(f"{matrix} of rank {rank}" for matrix, rank in ranks.items())])
        for name, ranks in result.ranks_by_layer().items()
    ]
    note = "Each matrix W is replaced by a product U V of this rank."
    return Section("Low rank", table("layer", ["matrices"], rows, "ranks of matrices"), note)


def _importance(result: PruningResult) -> Section | None:
    if not result.importance:
        return None
    most = max(map(len, result.importance.values()))
    largest = max((abs(v) for values in result.importance.values() for v in values), default=1.0) or 1.0
    cells = [
        [max(0.0, v) / largest for v in [*values, *[0.0] * (most - len(values))]]
        for values in result.importance.values()
    ]
    heads = [str(h) for h in range(most)]
    picture = heat_map(cells, list(result.importance), heads, "importance of each head, the largest = 1")
    return Section("Importance of heads", picture, MEASURES[result.by])


def _curve(result: PruningResult) -> Section | None:
    if not result.curve:
        return None
    charts = []
    for name in result.curve[0][1]:
        points = [(share * 100, scaled(name, metrics[name])) for share, metrics in result.curve if name in metrics]
        lines = [Series(name, points, dots=True)]
        if name in result.elbows:
            marked = [point for point in points if point[0] == result.elbows[name] * 100]
            lines.append(Series(f"elbow: {marked[0][0]:.0f} %", marked, dots=5.5))
        bounded = display_of(name).scale in ("fraction", "correlation", "points")
        log = False if bounded else None
        charts.append(line_chart(display_of(name).title, lines, x_label="% of heads without output", log=log))
    note = (
        "On the validation split, without fine-tuning: the output of the least important heads is set to zero. The elbow is "
        "the point farthest from the chord of the curve's ends (Kneedle, Satopää et al. 2011)."
    )
    return Section("How many heads are needed", tag("div", *charts, class_="charts"), note)


def _until(result: PruningResult) -> Section | None:
    if result.until is None:
        return None
    whole = result.losses[0][1]
    most = whole + result.until * abs(whole)
    allowed = [(0.0, most), (float(result.losses[-1][0]), most)]
    lines = [
        Series("loss", [(float(count), loss) for count, loss in result.losses], dots=True),
        Series(f"{result.until:.3g} times more" if result.until >= 1 else f"{result.until:.1%} more", allowed),
    ]
    chart = line_chart("loss", lines, x_label="heads without output")
    note = "On the validation split: the least important heads are removed as long as the loss stays below the line."
    return Section("Removed until the loss grows", tag("div", chart, class_="charts"), note)


def _redundancy(result: PruningResult) -> Section | None:
    """Of each stack: the matrix of similarity, the variance that few components cover, and the pairs that are most alike."""
    if not result.redundancy:
        return None
    parts, curves = [], []
    for stack, found in result.redundancy.items():
        parts.append(_matrix(stack, found))
        curves.append(Series(stack, [(i, 100 * share) for i, share in enumerate(found.covered, 1)], dots=True))
    rows = [
        (stack, [f"{found.needed(0.9)} of {len(found.heads)}", _alike(found)])
        for stack, found in result.redundancy.items()
    ]
    chart = line_chart("% of variance covered", curves, x_label="principal components of the heads", log=False)
    body = tag("div", *(tag("div", part, class_="scroll") for part in parts), chart, class_="charts")
    summary = table("stack", ["cover 90 %", "most alike"], rows, "redundancy of heads")
    tokens = ", ".join(f"{found.tokens:,} of the {stack}" for stack, found in result.redundancy.items())
    note = (
        f"Linear CKA of the outputs of two heads (Kornblith et al. 2019), over tokens of the validation split ({tokens}): "
        "1 for outputs that are equal up to a rotation and a factor, 0 for unrelated ones. Heads are named LAYER.HEAD. The "
        "fewer components cover the variance, the more heads repeat each other."
    )
    return Section("Redundancy between heads", join(summary, body), note)


def _matrix(stack: str, found: Redundancy) -> Markup:
    """The similarity of each two heads, without labels if they are many; of still more, the mean of each two layers."""
    label = f"similarity of the {len(found.heads)} heads of the {stack}: linear CKA of their outputs"
    if len(found.heads) <= _LABELED:
        return heat_map(found.similarity, found.heads, found.heads, label)
    if len(found.heads) <= _DRAWN:
        return small_map(found.similarity, label, 480)
    layers: dict[str, list[int]] = {}
    for i, name in enumerate(found.heads):
        layers.setdefault(name.rpartition(".")[0], []).append(i)
    means = [
        [sum(found.similarity[i][j] for i in a for j in b) / (len(a) * len(b)) for b in layers.values()]
        for a in layers.values()
    ]
    return heat_map(means, list(layers), list(layers), f"{label}, the mean over the heads of two layers")


def _alike(found: Redundancy) -> str:
    return ", ".join(f"{a} and {b} ({value:.2f})" for a, b, value in found.most_alike(3))
