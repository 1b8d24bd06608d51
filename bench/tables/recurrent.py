"""One training step of recurrent translators on full rows: bare kernels, loops over steps, and JoeyNMT's."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, profiles, spread, verdict

OURS = "qkv"
BARE, LOOP, ONCE, JOEY = "bare nn.{}", "a loop over steps", "the loop, keys made once", "JoeyNMT"

# What is trained: qkv's kind, and the others' (module:Class, kind, environment) by name.
_TORCH = "bench.contenders.recurrent:FullRows"
KINDS: dict[str, tuple[str, dict[str, tuple[str, str, str]]]] = {
    "fixed vector, LSTM": ("lstm", {BARE.format("LSTM"): (_TORCH, "lstm", "qkv")}),
    "fixed vector, GRU": ("gru", {BARE.format("GRU"): (_TORCH, "gru", "qkv")}),
    "Bahdanau": ("bahdanau", {LOOP: (_TORCH, "loop", "qkv"), ONCE: (_TORCH, "loop-keys-once", "qkv")}),
    "input feeding, additive score": (
        "feeding",
        {JOEY: ("bench.contenders.joeynmt_recurrent:FullRows", "feeding", "joeynmt")},
    ),
}


def cases(quick: bool) -> list[Case]:
    shape = shapes.tiny_recurrent() if quick else shapes.recurrent()
    made = []
    for title, (ours, others) in KINDS.items():
        mine = Contender(OURS, "bench.contenders.ours_recurrent:FullRows", {"shape": shape, "kind": ours})
        peers = (
            Contender(name, what, {"shape": shape, "kind": kind}, env) for name, (what, kind, env) in others.items()
        )
        key = {"what": title, "vocab_size": shape["vocab_size"], "shape": shape}
        made.append(Case(key, (mine, *peers), fresh=True, profiled=(OURS,), vocab_size=shape["vocab_size"]))
    return made


def render(result: Result) -> str:
    header = ["a training step", "tokens/s", "ms", "peak MiB", "time ÷ qkv's"]
    rows = [_row(Record(case), name) for case in result.cases for name in Record(case).names]
    parts = [markdown(header, rows), "\n".join([*_verdicts(result), *errors(result)])]
    found = profiles(result, OURS, _title)
    if found:
        parts.append("Where qkv's step spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, Any]) -> str:
    return str(key["what"])


def _row(record: Record, name: str) -> list[str]:
    ms, shape = record.median(name), record.key["shape"]
    tokens = shape["batch"] * (shape["source"] + shape["target"])
    ratio = "" if name == OURS or OURS not in record.names else spread(record.ratios(name, OURS))
    return [f"{_title(record.key)}: {name}", number(1e3 * tokens / ms), number(ms), number(record.memory(name)), ratio]


def _verdicts(result: Result) -> list[str]:
    lines = []
    for cell in ("LSTM", "GRU"):
        lines += _against(result, f"fixed vector, {cell}", BARE.format(cell), 1 / 1.05)
    lines += _against(result, "Bahdanau", LOOP, 1.5)
    return lines + _against(result, "input feeding, additive score", JOEY, 1.0)


def _against(result: Result, what: str, name: str, least: float) -> list[str]:
    record = result.find(what=what)
    if record is None or not {OURS, name} <= set(record.names):
        return []
    ratio = record.median(name) / record.median(OURS)
    return [verdict(f"{what}: qkv against {name}", ratio, round(least, 3), "×", least=True)]


TABLE = Table("recurrent", 5, cases, render)
