"""Attention backends: time by length and pattern, and the memory of long sequences. B 1, H 8; D 64 and fp32 unless said."""

from __future__ import annotations

from ..lockstep import Case, Contender
from ..results import Record, Result
from . import attention_sparse
from .attention_grid import grid, render_grid
from .table import Table, errors, markdown, number, profiles, spread, verdict

BACKENDS = ("reference", "sdpa", "tiled")
PATTERNS = ("full", "causal", "window")
PYTORCH = "PyTorch"
WINDOW, LONG = 256, 32768


def cases(quick: bool) -> list[Case]:
    lengths = (64, 128) if quick else (512, 1024, 2048, 4096)
    return [
        *(
            _timed(s, pattern, backward, lengths[-1])
            for backward in (False, True)
            for s in lengths
            for pattern in PATTERNS
        ),
        *(_long(256 if quick else LONG, pattern) for pattern in PATTERNS),
        *grid(quick),
        *attention_sparse.cases(quick),
    ]


def _timed(tokens: int, pattern: str, backward: bool, longest: int) -> Case:
    options = {"pattern": pattern, "tokens": tokens, "backward": backward}
    ours = [Contender(name, "bench.contenders.ours:Attention", {"backend": name, **options}) for name in BACKENDS]
    peer = Contender(PYTORCH, "bench.contenders.bare:Attention", options)
    return Case(options, (*ours, peer), profiled=("tiled",) if tokens == longest else ())


def _long(tokens: int, pattern: str) -> Case:
    options = {"pattern": pattern, "tokens": tokens, "backward": True}
    tiled = Contender("tiled", "bench.contenders.ours:Attention", {"backend": "tiled", **options})
    fused = Contender("sdpa", "bench.contenders.ours:Attention", {"backend": "sdpa", **options})
    # The fused function would hold a window's mask of all pairs: that is no way to attend at such lengths.
    return Case({**options, "memory": True}, (tiled,) if pattern == "window" else (tiled, fused), once=True)


def render(result: Result) -> str:
    parts = []
    for backward, title in ((False, "Forward"), (True, "Forward and backward")):
        header = [f"{title}, ms", *BACKENDS, "PyTorch's function", "tiled ÷ sdpa"]
        records = [record for record in result.records(backward=backward) if not {"memory", "row"} & set(record.key)]
        parts.append(markdown(header, (_row(record) for record in records)))
    parts += [_memory(result), render_grid(result), attention_sparse.render(result)]
    lines = [*_verdicts(result), *errors(result)]
    parts.append("\n".join(lines))
    found = profiles(result, "tiled", _title)
    if found:
        parts.append("Where `tiled` spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, object]) -> str:
    return f"{key['tokens']} {key['pattern']}, {'forward and backward' if key['backward'] else 'forward'}"


def _row(record: Record) -> list[str]:
    cells = [number(record.median(name)) if name in record.names else "–" for name in (*BACKENDS, PYTORCH)]
    ratio = spread(record.ratios("tiled", "sdpa")) if {"tiled", "sdpa"} <= set(record.names) else "–"
    return [f"{record.key['tokens']} {record.key['pattern']}", *cells, ratio]


def _memory(result: Result) -> str:
    rows = []
    for case in result.cases:
        record = Record(case)
        for name in record.names if "memory" in record.key and "row" not in record.key else ():
            rows.append(
                [f"{record.key['pattern']}, {name}", number(_growth(record, name)), number(record.median(name) / 1e3)]
            )
    tokens = max((case["key"]["tokens"] for case in result.cases if "row" not in case["key"]), default=0)
    table = markdown([f"{tokens:,} tokens, forward and backward", "memory above inputs, MiB", "s"], rows)
    return table if rows else ""


def _growth(record: Record, name: str) -> float:
    return record.median(name, "peak_mib") - record.median(name, "before_mib")


def _verdicts(result: Result) -> list[str]:
    lines = []
    longest = max((c["key"]["tokens"] for c in result.cases if not {"memory", "row"} & set(c["key"])), default=0)
    for backward, what in ((False, "forward"), (True, "forward and backward")):
        for pattern in PATTERNS:
            record = result.find(tokens=longest, pattern=pattern, backward=backward, row=None)
            if record is not None and {"tiled", "sdpa"} <= set(record.names):
                ratio = record.median("tiled") / record.median("sdpa")
                lines.append(verdict(f"tiled ÷ sdpa, {what}, {pattern}, {longest} tokens", ratio, 1.6))
    for pattern in PATTERNS:
        record = result.find(memory=True, pattern=pattern, row=None)
        if record is not None and "tiled" in record.names:
            gigabytes = _growth(record, "tiled") * 2**20 / 1e9
            title = f"memory above inputs, {pattern}, {record.key['tokens']:,} tokens"
            lines.append(verdict(title, gigabytes, 1.0, " GB"))
    return lines


TABLE = Table("attention", 7, cases, render)
