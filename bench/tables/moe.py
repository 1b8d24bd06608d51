"""A mixture of experts beside a dense layer that computes as much for each token."""

from __future__ import annotations

from statistics import median

from ..lockstep import Case, Contender
from ..results import Result
from .table import Table, errors, markdown, number, spread, verdict

DENSE, MIXTURE = "dense", "8 experts, 2 of them for each token"
SPEED = 0.85
SIZES = {"d_model": 512, "d_ff": 2048, "tokens": 4096}
TINY = {"d_model": 32, "d_ff": 64, "tokens": 64}


def cases(quick: bool) -> list[Case]:
    return [_case(TINY if quick else SIZES, precision) for precision in ("fp32", "bf16")]


def _case(sizes: dict[str, int], precision: str) -> Case:
    contenders = tuple(
        Contender(
            name,
            "bench.contenders.layers:Layer",
            {**sizes, "experts": experts, "precision": precision},
            keep_pages=True,
        )
        for name, experts in ((DENSE, 0), (MIXTURE, 8))
    )
    return Case({**sizes, "precision": precision}, contenders, profiled=(MIXTURE,))


def render(result: Result) -> str:
    parts, verdicts = [], []
    for record in result.records():
        precision = record.key["precision"]
        rows = ([n, number(record.median(n)), f"{record.fact(n, 'weights'):,}"] for n in record.names)
        parts.append(markdown([precision, "ms", "weights"], rows))
        if {DENSE, MIXTURE} <= set(record.names):
            speeds = record.ratios(DENSE, MIXTURE)
            what = f"speed of the mixture by the dense layer's, {precision} (rounds: {spread(speeds)})"
            verdicts.append(verdict(what, median(speeds), SPEED, "×", least=True))
    return "\n\n".join([*parts, "\n".join([*verdicts, *errors(result)])])


TABLE = Table("moe", 9, cases, render)
