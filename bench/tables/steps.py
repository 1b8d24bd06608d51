"""What tables of training steps share: the cases of one model in every mode and precision, and their rows.

Each mode is measured twice. With allocator "own" everyone runs as their users run them: qkv's command line tells glibc to
keep memory, the others say nothing. With "same" a peer is given that too, and stands alone beside qkv: kept memory is not
given back, and more than two would not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import markdown, number, spread, verdict

OURS = "qkv"
MODES = ("eager", "compiled")
PRECISIONS = ("fp32", "bf16")
OWN, SAME = "own", "same"
HEADER = ("tokens/s", "MFU", "ms a step", "of it system", "peak MiB", "time ÷ qkv's")

Who = dict[str, tuple[str, str]]  # name: ("module:Class", environment)


def cases(who: Who, shape: dict[str, int], flops: int, tokens: int) -> list[Case]:
    """Of one model; `flops` and `tokens` are of one step."""
    made = []
    for mode in MODES:
        for precision in PRECISIONS:
            options = {"shape": shape, "precision": precision, "compiled": mode == "compiled"}
            contenders = {
                name: Contender(name, what, options, environment, keep_pages=name == OURS)
                for name, (what, environment) in who.items()
            }
            key = {"vocab_size": shape["vocab_size"], "precision": precision, "mode": mode}
            sizes = {"shape": shape, "flops": flops, "tokens": tokens}
            made.append(_case({**key, "allocator": OWN, **sizes}, contenders.values(), profiled=True))
            for peer in (name for name in who if name != OURS):
                kept = Contender(peer, who[peer][0], options, who[peer][1], keep_pages=True)
                made.append(_case({**key, "allocator": SAME, "peer": peer, **sizes}, (contenders[OURS], kept)))
    return sorted(made, key=lambda case: case.key["allocator"])


def _case(key: dict[str, Any], contenders: Iterable[Contender], profiled: bool = False) -> Case:
    return Case(
        key,
        tuple(contenders),
        fresh=True,
        profiled=(OURS,) if profiled else (),
        vocab_size=key["vocab_size"],
    )


def tables(result: Result, title: Callable[[dict[str, Any]], str]) -> list[str]:
    """A table for each title, in the order of the cases."""
    grouped: dict[str, list[Record]] = {}
    for case in result.cases:
        grouped.setdefault(title(case["key"]), []).append(Record(case))
    return [
        markdown([name, *HEADER], (row for record in sorted(records, key=_order) for row in _rows(record)))
        for name, records in grouped.items()
    ]


def _order(record: Record) -> tuple[int, int]:
    return MODES.index(record.key["mode"]), (OWN, SAME).index(record.key["allocator"])


def _rows(record: Record) -> list[list[str]]:
    """One for each contender; beside a peer with qkv's allocator, qkv itself only gives the ratio."""
    same = record.key["allocator"] == SAME
    return [_row(record, name) for name in record.names if not (same and name == OURS)]


def _row(record: Record, name: str) -> list[str]:
    ms, key = record.median(name), record.key
    words = [name, key["mode"], *(["qkv's allocator"] if key["allocator"] == SAME else [])]
    return [
        ", ".join(words),
        number(1e3 * key["tokens"] / ms),
        f"{utilization(record, name):.0%}",
        number(ms),
        f"{record.median(name, 'system_ms') / max(record.median(name, 'cpu_ms'), 1e-9):.0%}",
        number(record.memory(name)),
        "" if name == OURS or OURS not in record.names else spread(record.ratios(name, OURS)),
    ]


def utilization(record: Record, name: str) -> float:
    """MFU: the model's products by what the probe of the same precision reached beside it."""
    return record.key["flops"] / (record.median(name) * 1e6) / record.probe(f"gemm_{record.key['precision']}")


def advantage(result: Result, **key: Any) -> tuple[float, str] | None:
    """By how much qkv is faster than the fastest peer in the cases with this key, and who that is."""
    found = [
        (record.median(name) / record.median(OURS), name)
        for record in result.records(**key)
        if OURS in record.names
        for name in record.names
        if name != OURS
    ]
    return min(found, default=None)


def advantage_line(result: Result, what: str, target: float, **key: Any) -> list[str]:
    """That advantage against a target; nothing if it was not measured."""
    found = advantage(result, **key)
    if found is None:
        return []
    ratio, peer = found
    return [verdict(f"qkv against the fastest peer ({peer}), {what}", ratio, target, "×", least=True)]
