"""What pre-training objectives cost beside the training itself: hiding words, corrupting spans, packing documents."""

from __future__ import annotations

from statistics import median

from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, spread, verdict

READY, OFF, ON = "batches made before", "workers 0", "workers auto"
MOST = 3.0  # per cent of a step

SIZES = ["model.d_model=256", "model.n_layers=4", "model.n_heads=4", "batching.tokens=4096"]
CASES = {
    "masked language model, next sentence": ("bert", ["model.d_ff=1024"]),
    "masked language model, whole words": ("bert", ["model.d_ff=1024", "task.units=words", "task.next_sentence=false"]),
    "span corruption": ("t5", ["model.d_ff=1024", "model.d_head=64"]),
    "denoising": ("bart", ["model.d_ff=1024"]),
    "next token": ("gpt", []),
    "next token, packed": ("gpt", ["batching.packing=true"]),
}
QUICK = ["model.d_model=32", "model.n_layers=1", "model.n_heads=2", "batching.tokens=1024"]


def cases(quick: bool) -> list[Case]:
    return [_case(name, quick) for name in (list(CASES)[:1] if quick else CASES)]


def _case(name: str, quick: bool) -> Case:
    recipe, settings = CASES[name]
    options = {"recipe": recipe, "settings": [*settings, *(QUICK if quick else SIZES)]}
    ways = {READY: None, OFF: 0, ON: "auto"}
    contenders = tuple(
        Contender(way, "bench.contenders.objectives:Steps", {**options, "workers": workers}, keep_pages=True)
        for way, workers in ways.items()
    )
    return Case({"objective": name}, contenders)


def render(result: Result) -> str:
    records = [record for record in result.records() if {READY, OFF, ON} <= set(record.names)]
    header = ["objective", "s for 12 steps", f"{OFF}, ÷ {READY}", f"{ON}, ÷ {READY}"]
    table = markdown(header, (_row(record) for record in records))
    verdicts = [
        verdict(f"{record.key['objective']}, {way}", _cost(record, way), MOST, " %")
        for record in records
        for way in (OFF, ON)
    ]
    return "\n\n".join([table, "\n".join([*verdicts, *errors(result)])])


def _row(record: Record) -> list[str]:
    ratios = [spread(record.ratios(way, READY)) for way in (OFF, ON)]
    return [record.key["objective"], number(record.median(READY) / 1e3), *ratios]


def _cost(record: Record, way: str) -> float:
    """Per cent that a step takes longer if its batch has to be made."""
    return 100 * (median(record.ratios(way, READY)) - 1)


TABLE = Table("objectives", 9, cases, render)
