"""Decoding with a cache, random weights: GPT-2 (124 M), 128 tokens in and 128 out, greedy; Marian's size, 32 in and 64 out,
greedy and with four beams."""

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
    continued = [_case(batch, precision, quick) for batch in batches for precision in BYTES]
    return [*continued, *(_pair_case(batch, beams, quick) for batch in batches for beams in (1, 4))]


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


def _pair_case(batch: int, beams: int, quick: bool) -> Case:
    shape = {**shapes.tiny_pairs(), "batch": batch} if quick else shapes.marian(batch)
    options = {"shape": shape, "precision": "fp32", "new": shape["target"], "beams": beams}
    contenders = (
        Contender(OURS, "bench.contenders.ours_pairs:Decoding", options),
        Contender("Hugging Face Marian", "bench.contenders.marian:Decoding", options, "huggingface"),
    )
    key = {"model": "Marian's size", "batch": batch, **options, "weights": shapes.n_decoder_parameters(shape)}
    return Case(key, contenders, fresh=True, profiled=(OURS,))


def title(key: dict[str, Any]) -> str:
    """A case in words, with its model."""
    return _title(key) if "model" in key else f"GPT-2, {_title(key)}"


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
    beams = key.get("beams")
    name, how = ("", "") if beams is None else (f"{key['model']}, ", ", greedy" if beams == 1 else f", {beams} beams")
    return f"{name}batch {key['batch']}, {key['precision']}{how}"


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
