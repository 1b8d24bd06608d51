"""Greedy decoding of GPT-2 (124 M, random weights): 128 tokens in, 128 out, with a cache."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, profiles, spread

OURS = "qkv"
BYTES = {"fp32": 4, "bf16": 2}


def cases(quick: bool) -> list[Case]:
    batches = (1, 2) if quick else (1, 16)
    return [_case(batch, precision, quick) for batch in batches for precision in BYTES]


def _case(batch: int, precision: str, quick: bool) -> Case:
    shape = shapes.tiny(batch=batch) if quick else shapes.gpt2(batch)
    length = 4 if quick else 128
    options = {"shape": shape, "precision": precision, "prompt": length, "new": length}
    contenders = (
        Contender(OURS, "bench.contenders.ours:Decoding", options),
        Contender("bare PyTorch", "bench.contenders.bare:Decoding", options),
        Contender("Hugging Face GPT-2", "bench.contenders.huggingface:Decoding", options, "huggingface"),
    )
    key = {"batch": batch, **options, "weights": shapes.n_matrix_parameters(shape)}
    return Case(key, contenders, fresh=True, profiled=(OURS,))


def render(result: Result) -> str:
    parts = []
    for case in result.cases:
        record = Record(case)
        header = [_title(record.key), "tokens/s", "GB/s of weights read", "peak MiB", "time ÷ qkv's"]
        parts.append(markdown(header, (_row(record, name) for name in record.names)))
    parts.append("\n".join(errors(result)))
    found = profiles(result, OURS, _title)
    if found:
        parts.append("Where qkv's decoding spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, Any]) -> str:
    return f"batch {key['batch']}, {key['precision']}"


def _row(record: Record, name: str) -> list[str]:
    ms, key = record.median(name), record.key
    steps = key["new"] / (ms / 1e3)
    read = steps * key["weights"] * BYTES[key["precision"]] / 1e9
    return [
        name,
        number(steps * key["batch"]),
        f"{read:.1f} ({read / record.probe('read'):.0%} of the probe)",
        number(record.memory(name)),
        "" if name == OURS or OURS not in record.names else spread(record.ratios(name, OURS)),
    ]


TABLE = Table("decode", 3, cases, render)
