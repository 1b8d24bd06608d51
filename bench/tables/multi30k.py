"""Training an encoder–decoder on the sentences of Multi30k, English → German, each library with its usual batches.

Contenders make their own batches, so the real target tokens per second are compared.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from .. import corpora
from ..contenders.gate import ONE_ARENA
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, profiles, spread, verdict

OURS, MARIAN = "qkv", "Hugging Face Marian"
GROUPED, KEPT = f"{MARIAN}, grouped by length", f"{MARIAN}, qkv's allocator"
TARGET = 2.0  # times Marian's usual batches
DROPOUT = 0.1
SIZES = {
    "d 256, 3 + 3 layers": ({"d_model": 256, "d_ff": 1024, "n_layers": 3, "n_heads": 4}, 20),
    "d 512, 6 + 6 layers": ({"d_model": 512, "d_ff": 2048, "n_layers": 6, "n_heads": 8}, 6),
}  # and how many steps a round takes
TINY = {"tiny": ({"d_model": 64, "d_ff": 128, "n_layers": 1, "n_heads": 2}, 2)}


def cases(quick: bool) -> list[Case]:
    data = corpora.multi30k(600, 512, sentences=400) if quick else corpora.multi30k(8000, 4096)
    return [
        _case(title, sizes, count, precision, data)
        for title, (sizes, count) in (TINY if quick else SIZES).items()
        for precision in ("fp32", "bf16")
    ]


def _case(title: str, sizes: dict[str, int], steps: int, precision: str, data: corpora.Pairs) -> Case:
    shape = {"vocab_size": data.vocab_size, **sizes, "batch": data.rows, "source": 0, "target": 0}
    common = {"shape": shape, "precision": precision, "dropout": DROPOUT, "steps": steps}
    marian = {**common, "ids": data.ids, "rows": data.rows}
    toolkit = {**common, "source": data.source, "target": data.target, "words": data.words, "tokens": data.tokens}
    theirs = partial(Contender, what="bench.contenders.marian:Sentences", environment="huggingface")
    contenders = [
        Contender(
            OURS,
            "bench.contenders.ours_pairs:Sentences",
            {**common, "settings": data.settings},
            keep_pages=True,
            variables=ONE_ARENA,
        ),
        theirs(MARIAN, options=marian),
        theirs(KEPT, options=marian, keep_pages=True),
        theirs(GROUPED, options={**marian, "grouped": True}),
        Contender("eole", "bench.contenders.eole:Sentences", toolkit, "eole", variables=ONE_ARENA),
    ]
    if precision == "fp32":  # it computes in nothing else on a CPU
        joeynmt = Contender("JoeyNMT", "bench.contenders.joeynmt:Sentences", toolkit, "joeynmt", variables=ONE_ARENA)
        contenders.append(joeynmt)
    key = {"model": title, "precision": precision, "shape": shape, "steps": steps, "tokens": data.tokens}
    return Case(key, tuple(contenders), fresh=True, profiled=(OURS,), vocab_size=data.vocab_size)


def render(result: Result) -> str:
    parts = []
    for case in result.cases:
        record = Record(case)
        header = [_title(record.key), "target tokens/s", "a step", "padding", "of it system", "peak MiB", "qkv's ÷ its"]
        parts.append(markdown(header, (_row(record, name) for name in record.names)))
    parts.append("\n".join([*_verdicts(result), *errors(result)]))
    found = profiles(result, OURS, _title)
    if found:
        parts.append("Where qkv's training spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, Any]) -> str:
    return f"{key['model']}, {key['precision']}"


def _row(record: Record, name: str) -> list[str]:
    tokens = [
        sum(sides) for sides in zip(*(record.told(name, f"{s}_tokens") for s in ("source", "target")), strict=True)
    ]
    padding = 1 - sum(tokens) / sum(record.told(name, "slots"))
    return [
        name,
        number(median(record.rates(name, "target_tokens"))),
        number(median(record.told(name, "target_tokens")) / record.key["steps"]),
        f"{padding:.0%}",
        f"{record.median(name, 'system_ms') / max(record.median(name, 'cpu_ms'), 1e-9):.0%}",
        number(record.memory(name)),
        "" if name == OURS or OURS not in record.names else spread(advantages(record, name)),
    ]


def advantages(record: Record, name: str) -> list[float]:
    """By how much more real target tokens qkv trains on in a second, round by round."""
    pairs = zip(record.rates(OURS, "target_tokens"), record.rates(name, "target_tokens"), strict=True)
    return [ours / theirs for ours, theirs in pairs]


def _verdicts(result: Result) -> list[str]:
    lines = []
    for record in map(Record, result.cases):
        if {OURS, MARIAN} <= set(record.names):
            ratio = median(advantages(record, MARIAN))
            title = f"real target tokens/s against {MARIAN} with its usual batches, {_title(record.key)}"
            lines.append(verdict(title, ratio, TARGET, "×", least=True))
    return lines


TABLE = Table("multi30k", 5, cases, render, lacks=partial(corpora.missing, corpora.MULTI30K))
