"""Families of the Hub: outputs, a training step and greedy decoding, as qkv and as transformers compute them."""

from __future__ import annotations

from statistics import median

from ..contenders.families import CONFIGS, NEW
from ..lockstep import Case, Contender
from ..results import Result
from .table import Table, errors, markdown, spread

OURS, THEIRS = "qkv", "transformers"
DEEDS = {"outputs": "Forward", "training": "TrainingStep", "decoding": "Decoding"}
BATCH, LENGTH = 8, 128


def cases(quick: bool) -> list[Case]:
    names = ["gpt2", "bert", "t5"] if quick else list(CONFIGS)
    return [
        _case(family, deed, *((1, 8) if quick else (BATCH, LENGTH)))
        for family in names
        for deed in DEEDS
        if deed != "decoding" or CONFIGS[family][1] != "read"
    ]


def _case(family: str, deed: str, batch: int, length: int) -> Case:
    options = {"family": family, "batch": batch, "length": length}
    contenders = (
        Contender(OURS, f"bench.contenders.families_ours:{DEEDS[deed]}", options),
        Contender(THEIRS, f"bench.contenders.families_theirs:{DEEDS[deed]}", options, "huggingface"),
    )
    return Case({"family": family, "what": deed, "batch": batch, "length": length, "new": NEW}, contenders)


def render(result: Result) -> str:
    rows = [[f"`{family}`", *(_ratio(result, family, deed) for deed in DEEDS)] for family in result.keys("family")]
    slower = [
        f"`{record.key['family']}`, {record.key['what']}"
        for record in result.records()
        if {OURS, THEIRS} <= set(record.names) and median(record.ratios(THEIRS, OURS)) < 1.0
    ]
    verdict = f"Slower than transformers: {', '.join(slower)}." if slower else "None is slower than in transformers."
    table = markdown(["transformers' time ÷ qkv's", *DEEDS], rows)
    return "\n".join([table, "", f"- {verdict}", *errors(result)])


def _ratio(result: Result, family: str, deed: str) -> str:
    record = result.find(family=family, what=deed)
    return spread(record.ratios(THEIRS, OURS)) if record and {OURS, THEIRS} <= set(record.names) else ""


TABLE = Table("families", 5, cases, render)
