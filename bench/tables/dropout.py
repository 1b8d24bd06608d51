"""One training step of a decoder-only model with dropout beside one without, of qkv and of transformers."""

from __future__ import annotations

from ..contenders import shapes
from ..lockstep import Case, Contender
from ..results import Record, Result
from . import steps
from .steps import OURS
from .table import Table, errors, markdown, number, spread, verdict

WHO: steps.Who = {
    OURS: ("bench.contenders.ours:TrainingStep", "qkv"),
    "Hugging Face GPT-2": ("bench.contenders.huggingface:TrainingStep", "qkv"),  # which has transformers for its tests
}
RATE = 0.1  # of weights, residual streams and embeddings, as in GPT-2
MOST = 1.1  # of a step without dropout


def cases(quick: bool) -> list[Case]:
    shape = shapes.tiny() if quick else shapes.training(8192)
    made = []
    for precision in steps.PRECISIONS:
        contenders = tuple(
            Contender(
                _name(who, rate),
                what,
                {"shape": {**shape, "dropout": rate}, "precision": precision},
                environment,
                keep_pages=who == OURS,
            )
            for who, (what, environment) in WHO.items()
            for rate in (0.0, RATE)
        )
        key = {"precision": precision, "shape": shape, "tokens": shape["batch"] * shape["context"]}
        made.append(Case(key, contenders, fresh=True, profiled=(), vocab_size=shape["vocab_size"]))
    return made


def _name(who: str, rate: float) -> str:
    return f"{who}, dropout {rate:g}" if rate else who


def render(result: Result) -> str:
    records = [Record(case) for case in result.cases]
    header = ["tokens/s", "ms a step", "peak MiB", "time ÷ its own without dropout", "time ÷ qkv's"]
    tables = [
        markdown([record.key["precision"], *header], [_row(record, name) for name in record.names])
        for record in records
    ]
    return "\n\n".join([*tables, "\n".join([*_verdicts(records), *errors(result)])])


def _row(record: Record, name: str) -> list[str]:
    bare, ours = name.partition(", ")[0], _name(OURS, RATE if ", " in name else 0.0)
    own = spread(record.ratios(name, bare)) if name != bare and bare in record.names else ""
    beside = spread(record.ratios(name, ours)) if name != ours and ours in record.names else ""
    ms = record.median(name)
    return [name, number(1e3 * record.key["tokens"] / ms), number(ms), number(record.memory(name)), own, beside]


def _verdicts(records: list[Record]) -> list[str]:
    dropped = _name(OURS, RATE)
    return [
        verdict(
            f"a step with dropout {RATE:g} by one without, {record.key['precision']}",
            record.median(dropped) / record.median(OURS),
            MOST,
            "×",
        )
        for record in records
        if {OURS, dropped} <= set(record.names)
    ]


TABLE = Table("dropout", 5, cases, render)
