"""What patterns that leave out much cost, beside what their share of dense attention would; and how windows grow."""

from __future__ import annotations

from statistics import median

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import markdown, number, verdict

SPARSE, GROWTH = "sparse", "growth"
PATTERNS = ("window", "two-sided window", "dilated", "strided", "longformer", "bigbird")
TOKENS, LONGEST = 16384, 131072
_LESS = 4  # dense attention is measured at a quarter of the tokens, and taken sixteen times
OURS, DENSE, FLEX = "qkv", "dense", "FlexAttention"
_OURS = "bench.contenders.ours:Attention"


def cases(quick: bool) -> list[Case]:
    tokens, longest = (1024, 1024) if quick else (TOKENS, LONGEST)
    lengths = [longest >> i for i in range(1 if quick else 5)][::-1]
    return [
        *(_sparse(tokens, pattern, backward) for backward in (False, True) for pattern in PATTERNS),
        *(_growth(n, backward) for backward in (False, True) for n in lengths),
    ]


def _sparse(tokens: int, pattern: str, backward: bool) -> Case:
    options = {"pattern": pattern, "tokens": tokens, "backward": backward}
    dense = {"pattern": "full", "tokens": tokens // _LESS, "backward": backward}
    contenders = [
        Contender(OURS, _OURS, {"backend": "auto", **options}, keep_pages=True),
        Contender(DENSE, "bench.contenders.bare:Attention", dense, keep_pages=True),
    ]
    if "window" in pattern and not backward:  # it has no backward pass on a CPU
        flex = {"pattern": pattern, "tokens": tokens}
        contenders.append(Contender(FLEX, "bench.contenders.bare:FlexAttention", flex, keep_pages=True))
    return Case({"row": SPARSE, **options}, tuple(contenders))


def _growth(tokens: int, backward: bool) -> Case:
    options = {"pattern": "window", "tokens": tokens, "backward": backward}
    ours = Contender(OURS, _OURS, {"backend": "auto", **options})
    return Case({"row": GROWTH, **options, "memory": True}, (ours,), once=True)


def render(result: Result) -> list[str]:
    return [_render_sparse(result), _render_growth(result)]


def ratio(record: Record) -> float:
    """Time by what the needed blocks' share of dense attention takes."""
    needed = record.fact(OURS, "share") * _LESS**2
    return median(record.ratios(OURS, DENSE)) / needed


def _render_sparse(result: Result) -> str:
    records = [record for record in result.records(row=SPARSE) if {OURS, DENSE} <= set(record.names)]
    if not records:
        return ""
    rows, lines = [], []
    for record in records:
        pattern, tokens = record.key["pattern"], record.key["tokens"]
        what = f"{tokens} {pattern}, {'both ways' if record.key['backward'] else 'forward'}"
        flex = number(record.median(FLEX)) if FLEX in record.names else "–"
        needed, ideal = record.fact(OURS, "share"), record.median(OURS) / ratio(record)
        rows.append([what, f"{needed:.2%}", number(ideal), number(record.median(OURS)), flex, f"{ratio(record):.2f}"])
        lines.append(verdict(f"time ÷ ideal, {what}", ratio(record), 1.5))
    header = ["Sparse", "blocks needed", "their share of dense, ms", "auto, ms", "FlexAttention, ms", "auto ÷ share"]
    return "\n\n".join([markdown(header, rows), "\n".join(lines)])


def _render_growth(result: Result) -> str:
    rows = []
    for record in result.records(row=GROWTH):
        if OURS in record.names:
            grown = record.median(OURS, "peak_mib") - record.median(OURS, "before_mib")
            ms, tokens = record.median(OURS), record.key["tokens"]
            what = f"{tokens:,}, {'both ways' if record.key['backward'] else 'forward'}"
            rows.append([what, number(ms), number(1e6 * ms / tokens), number(grown), number(1024 * grown / tokens)])
    header = ["Window of 256, tokens", "ms", "ns a token", "memory above inputs, MiB", "KiB a token"]
    return markdown(header, rows) if rows else ""
