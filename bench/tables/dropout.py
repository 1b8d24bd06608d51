"""One training step with dropout beside one without: a decoder-only model, and an encoder–decoder on full rows."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case, Contender
from ..results import Record, Result
from . import steps
from .steps import OURS
from .table import Table, errors, markdown, number, spread, verdict

DECODER: steps.Who = {
    OURS: ("bench.contenders.ours:TrainingStep", "qkv"),
    "Hugging Face GPT-2": ("bench.contenders.huggingface:TrainingStep", "qkv"),  # which has transformers for its tests
}
PAIRS: steps.Who = {
    OURS: ("bench.contenders.ours_pairs:FullRows", "qkv"),
    "Hugging Face Marian": ("bench.contenders.marian:FullRows", "qkv"),
    "nn.Transformer": ("bench.contenders.nntransformer:FullRows", "qkv"),
}
RATE = 0.1  # of weights, residual streams and embeddings, as in GPT-2; of the last two, as in Vaswani et al. 2017
MOST = 1.1  # of a step without dropout


def cases(quick: bool) -> list[Case]:
    decoder = shapes.tiny() if quick else shapes.training(8192)
    pairs = shapes.tiny_pairs() if quick else shapes.pairs()
    tokens = decoder["batch"] * decoder["context"], pairs["batch"] * (pairs["source"] + pairs["target"])
    return [
        _case(who, shape, precision, {"tokens": n, **named})
        for who, shape, n, named in (
            (DECODER, decoder, tokens[0], {}),
            (PAIRS, pairs, tokens[1], {"model": "encoder–decoder"}),
        )
        for precision in steps.PRECISIONS
    ]


def _case(who: steps.Who, shape: shapes.Shape, precision: str, about: dict[str, Any]) -> Case:
    contenders = tuple(
        Contender(
            _name(name, rate),
            what,
            {"shape": {**shape, "dropout": rate}, "precision": precision},
            environment,
            keep_pages=name == OURS,
        )
        for name, (what, environment) in who.items()
        for rate in (0.0, RATE)
    )
    key = {"precision": precision, "shape": shape, **about}
    return Case(key, contenders, fresh=True, profiled=(), vocab_size=shape["vocab_size"])


def _title(record: Record) -> str:
    return ", ".join([*([record.key["model"]] if "model" in record.key else []), record.key["precision"]])


def _name(who: str, rate: float) -> str:
    return f"{who}, dropout {rate:g}" if rate else who


def render(result: Result) -> str:
    records = [Record(case) for case in result.cases]
    header = ["tokens/s", "ms a step", "peak MiB", "time ÷ its own without dropout", "time ÷ qkv's"]
    tables = [markdown([_title(record), *header], [_row(record, name) for name in record.names]) for record in records]
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
            f"a step with dropout {RATE:g} by one without, {_title(record)}",
            record.median(dropped) / record.median(OURS),
            MOST,
            "×",
        )
        for record in records
        if {OURS, dropped} <= set(record.names)
    ]


TABLE = Table("dropout", 5, cases, render)
