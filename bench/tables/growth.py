"""How time and memory grow with the length: attention with a window, and linear attention. B 1, H 8, D 64, fp32."""

from __future__ import annotations

from collections.abc import Callable

from qkv.look.chart import Series, line_chart
from qkv.look.standalone_svg import HEIGHT, WIDTH, figure

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, verdict

WINDOW, LINEAR = "window of 256", "linear attention"
LONGEST, DOUBLINGS = 131072, 4
FIGURE = "growth.svg"
_DIRECTIONS = {False: "forward", True: "both ways"}

Curve = list[tuple[int, float]]  # values by tokens


def cases(quick: bool) -> list[Case]:
    """In turns for the time; each alone for the memory, in a process that has done nothing else."""
    lengths = [1024, 2048] if quick else [LONGEST >> i for i in range(DOUBLINGS + 1)][::-1]
    return [
        Case({"tokens": tokens, "backward": backward, **({"memory": True} if alone else {})}, both, once=alone)
        for alone in (False, True)
        for backward in _DIRECTIONS
        for tokens in lengths
        for both in [_contenders(tokens, backward, alone)]
    ]


def _contenders(tokens: int, backward: bool, alone: bool) -> tuple[Contender, ...]:
    """A process whose memory is measured gives back what it frees."""
    options = {"tokens": tokens, "backward": backward}
    window = {"backend": "auto", "pattern": "window", **options}
    return (
        Contender(WINDOW, "bench.contenders.ours:Attention", window, keep_pages=not alone),
        Contender(LINEAR, "bench.contenders.ours:LinearAttention", options, keep_pages=not alone),
    )


def render(result: Result) -> str:
    rows = []
    for record in result.records(memory=None):
        tokens, alone = record.key["tokens"], _alone(result, record)
        for name in record.names:
            ms, what = record.median(name), f"{tokens:,}, {name}, {_DIRECTIONS[record.key['backward']]}"
            grown = None if alone is None or name not in alone.names else memory(alone, name)
            held = ["–", "–"] if grown is None else [number(grown), number(1024 * grown / tokens)]
            rows.append([what, number(ms), number(1e6 * ms / tokens), *held])
    header = ["Tokens", "ms", "ns a token", "memory above inputs, MiB", "KiB a token"]
    parts = [f"![Time and memory by tokens]({FIGURE})", markdown(header, rows), "\n".join(_verdicts(result))]
    return "\n\n".join([*parts, *errors(result)])


def _alone(result: Result, record: Record) -> Record | None:
    return result.find(**{**record.key, "memory": True})


def memory(record: Record, name: str) -> float:
    """MiB by which the process grew above its inputs; a page at least, for the logarithmic axis."""
    return max(record.median(name, "peak_mib") - record.median(name, "before_mib"), 1 / 256)


def _verdicts(result: Result) -> list[str]:
    """What a token of the longest takes by what one of the shortest does: 1 if growth is linear."""
    lines = []
    for name, backward, points in _curves(result, None, Record.median):
        (first, before), (last, after) = points[0], points[-1]
        what = f"time a token at {last:,} ÷ at {first:,} tokens, {name}, {_DIRECTIONS[backward]}"
        lines.append(verdict(what, after / last / (before / first), 1.2))
    return lines


def _curves(result: Result, alone: bool | None, value: Callable[[Record, str], float]) -> list[tuple[str, bool, Curve]]:
    """A curve for each contender and direction that has values."""
    found = []
    for name in (WINDOW, LINEAR):
        for backward in _DIRECTIONS:
            records = [r for r in result.records(memory=alone, backward=backward) if name in r.names]
            found.append((name, backward, [(record.key["tokens"], value(record, name)) for record in records]))
    return [curve for curve in found if curve[2]]


def draw(result: Result) -> dict[str, str]:
    """Time and memory by tokens, both axes logarithmic: what grows linearly is a straight line that rises with slope 1."""
    charts = []
    for title, alone, value in (("Time, ms", None, Record.median), ("Memory above inputs, MiB", True, memory)):
        lines = [
            Series(name.split()[0] + (", both ways" if backward else ""), points, dots=True)
            for name, backward, points in _curves(result, alone, value)
        ]
        charts.append(line_chart(title, lines, x_label="tokens", width=WIDTH, height=HEIGHT, log=True, log_x=True))
    return {FIGURE: figure(*charts) + "\n"}


TABLE = Table("growth", 5, cases, render, draw=draw)
