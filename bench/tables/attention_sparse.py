"""What patterns that leave out much cost, beside what their share of dense attention would: PyTorch's, and qkv's own."""

from __future__ import annotations

from statistics import median

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import markdown, number, verdict

SPARSE = "sparse"
PATTERNS = ("window", "two-sided window", "dilated", "strided", "longformer", "bigbird")
TOKENS = 16384
BESIDE_OWN, OWN_TOKENS, OWN_TARGET = "sparse beside qkv's dense", 8192, 1.3
_LESS = 4  # dense attention is measured at a quarter of the tokens, and taken sixteen times
OURS, DENSE, FLEX = "qkv", "dense", "FlexAttention"
_OURS = "bench.contenders.ours:Attention"


def cases(quick: bool) -> list[Case]:
    tokens = 1024 if quick else TOKENS
    sparse = [_sparse(tokens, pattern, backward) for backward in (False, True) for pattern in PATTERNS]
    return [*sparse, *(_beside_own(1024 if quick else OWN_TOKENS, backward) for backward in (False, True))]


def _beside_own(tokens: int, backward: bool) -> Case:
    """A window beside full attention over the same tokens, both by qkv."""
    options = {"tokens": tokens, "backward": backward}
    contenders = tuple(
        Contender(name, _OURS, {"backend": "auto", "pattern": pattern, **options}, keep_pages=True)
        for name, pattern in ((OURS, "window"), (DENSE, "full"))
    )
    return Case({"row": BESIDE_OWN, "pattern": "window", **options}, contenders)


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


def ratio(record: Record) -> float:
    """Time by what the needed blocks' share of dense attention takes."""
    needed = record.fact(OURS, "share") * _LESS**2
    return median(record.ratios(OURS, DENSE)) / needed


def render(result: Result) -> str:
    records, own = (
        [record for record in result.records(row=row) if {OURS, DENSE} <= set(record.names)]
        for row in (SPARSE, BESIDE_OWN)
    )
    rows, lines = [], []
    for record in records:
        pattern, tokens = record.key["pattern"], record.key["tokens"]
        what = f"{tokens} {pattern}, {'both ways' if record.key['backward'] else 'forward'}"
        flex = number(record.median(FLEX)) if FLEX in record.names else "–"
        needed, ideal = record.fact(OURS, "share"), record.median(OURS) / ratio(record)
        rows.append([what, f"{needed:.2%}", number(ideal), number(record.median(OURS)), flex, f"{ratio(record):.2f}"])
        lines.append(verdict(f"time ÷ ideal, {what}", ratio(record), 1.5))
    for record in own:
        what = f"{record.key['tokens']} window, {'both ways' if record.key['backward'] else 'forward'}"
        share = median(record.ratios(OURS, DENSE)) / record.fact(OURS, "share")
        lines.append(verdict(f"time ÷ its share of qkv's own full attention, {what}", share, OWN_TARGET))
    header = ["Sparse", "blocks needed", "their share of dense, ms", "auto, ms", "FlexAttention, ms", "auto ÷ share"]
    return "\n\n".join([*([markdown(header, rows)] if rows else []), *(["\n".join(lines)] if lines else [])])
