"""One training step of a decoder-only model beside the libraries that people would pick instead."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, profiles, spread, verdict

OURS = "qkv"
PRECISIONS = ("fp32", "bf16")
TARGETS = {"fp32": 1.15, "bf16": 1.3}  # at the larger vocabulary, against the fastest peer


def cases(quick: bool) -> list[Case]:
    vocabularies = (64, 128) if quick else (8192, 50257)
    return [_case(v, precision, quick) for v in vocabularies for precision in PRECISIONS]


def _case(vocab_size: int, precision: str, quick: bool) -> Case:
    shape = shapes.tiny(vocab_size) if quick else shapes.training(vocab_size)
    options = {"shape": shape, "precision": precision}
    contenders = (
        Contender(OURS, "bench.contenders.ours:TrainingStep", options),
        Contender("bare PyTorch", "bench.contenders.bare:TrainingStep", options),
        Contender("Hugging Face GPT-2", "bench.contenders.huggingface:TrainingStep", options, "huggingface"),
        Contender("x-transformers", "bench.contenders.xtransformers:TrainingStep", options, "x-transformers"),
    )
    key = {"vocab_size": vocab_size, "precision": precision, "shape": shape, "flops": shapes.step_flops(shape)}
    return Case(key, contenders, fresh=True, profiled=(OURS,))


def render(result: Result) -> str:
    parts = []
    for case in result.cases:
        record = Record(case)
        rate = f"V {record.key['vocab_size']}, {record.key['precision']}"
        header = [rate, "tokens/s", "MFU", "ms a step", "of it system", "peak MiB", "time ÷ qkv's"]
        parts.append(markdown(header, (_row(record, name) for name in record.names)))
    parts.append("\n".join([*_verdicts(result), *errors(result)]))
    found = profiles(result, OURS, _title)
    if found:
        parts.append("Where qkv's step spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _title(key: dict[str, Any]) -> str:
    return f"V {key['vocab_size']}, {key['precision']}"


def _row(record: Record, name: str) -> list[str]:
    ms, shape = record.median(name), record.key["shape"]
    mfu = record.key["flops"] / (ms * 1e6) / record.probe(f"gemm_{record.key['precision']}")
    return [
        name,
        number(1e3 * shape["batch"] * shape["context"] / ms),
        f"{mfu:.0%}",
        number(ms),
        f"{record.median(name, 'system_ms') / max(record.median(name, 'cpu_ms'), 1e-9):.0%}",
        number(record.memory(name)),
        "" if name == OURS or OURS not in record.names else spread(record.ratios(name, OURS)),
    ]


def _verdicts(result: Result) -> list[str]:
    lines = []
    largest = max(result.keys("vocab_size"), default=0)
    for precision, target in TARGETS.items():
        record = result.find(vocab_size=largest, precision=precision)
        peer = record and OURS in record.names and record.fastest(but=OURS)
        if record and peer:
            ratio = record.median(peer) / record.median(OURS)
            title = f"qkv against the fastest peer ({peer}), V {largest}, {precision}, eager"
            lines.append(verdict(title, ratio, target, "×", least=True))
    return lines


TABLE = Table("train", 5, cases, render)
