"""Loading a directory of the Hub: 1.5 billion fp32 parameters, beside the plain reading of the file."""

from __future__ import annotations

from statistics import median

from ..contenders.loading import MODELS
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, spread, verdict

READING, OURS, THEIRS = "reading the file", "qkv.load", "transformers, from_pretrained"
TIME, MEMORY = 1.1, 1.1


def cases(quick: bool) -> list[Case]:
    return [_case(model) for model in MODELS if ("tiny" in model) == quick]


def _case(model: str) -> Case:
    contenders = (
        Contender(READING, "bench.contenders.loading:Reading", {"model": model}),
        Contender(OURS, "bench.contenders.loading:Ours", {"model": model}),
        Contender(THEIRS, "bench.contenders.loading:Theirs", {"model": model}, "huggingface"),
    )
    return Case({"model": model}, contenders, fresh=True)


def render(result: Result) -> str:
    parts, verdicts = [], []
    for record in result.records():
        model = record.key["model"]
        header = [model, "s", "time ÷ reading", "memory it grew by ÷ the file"]
        parts.append(markdown(header, (_row(record, name) for name in record.names)))
        if {READING, OURS} <= set(record.names):
            ratio = median(record.ratios(OURS, READING))
            verdicts.append(verdict(f"qkv.load, {model}, time ÷ reading", ratio, TIME))
            verdicts.append(verdict(f"qkv.load, {model}, memory ÷ the file", _memory(record, OURS), MEMORY))
    return "\n\n".join([*parts, "\n".join([*verdicts, *errors(result)])])


def _row(record: Record, name: str) -> list[str]:
    ratio = spread(record.ratios(name, READING)) if READING in record.names else ""
    return [name, number(record.median(name) / 1e3), ratio, f"{_memory(record, name):.2f}"]


def _memory(record: Record, name: str) -> float:
    size = record.fact(READING, "bytes") or 1
    return (record.memory(name) - record.memory(name, "before_mib")) * 2**20 / size


TABLE = Table("loading", 3, cases, render)
