"""One training step of a decoder-only model beside the libraries that people would pick instead."""

from __future__ import annotations

from typing import Any

from ..contenders import shapes
from ..lockstep import Case
from ..results import Result
from . import steps
from .steps import OURS, OWN, SAME
from .table import Table, errors, profiles, verdict

WHO: steps.Who = {
    OURS: ("bench.contenders.ours:TrainingStep", "qkv"),
    "Hugging Face GPT-2": ("bench.contenders.huggingface:TrainingStep", "huggingface"),
    "nanoGPT": ("bench.contenders.nanogpt:TrainingStep", "nanogpt"),
    "x-transformers": ("bench.contenders.xtransformers:TrainingStep", "x-transformers"),
}
EAGER = {"fp32": 1.15, "bf16": 1.3}  # targets at the larger vocabulary, against the fastest peer
COMPILED = {OWN: 1.05, SAME: 1.0}
MFU = {("fp32", "eager"): 0.85, ("fp32", "compiled"): 0.85, ("bf16", "eager"): 0.4, ("bf16", "compiled"): 0.5}


def cases(quick: bool) -> list[Case]:
    made = []
    for vocab_size in (64,) if quick else (8192, 50257):
        shape = shapes.tiny(vocab_size) if quick else shapes.training(vocab_size)
        made += steps.cases(WHO, shape, shapes.step_flops(shape), shape["batch"] * shape["context"])
    return made


def render(result: Result) -> str:
    parts = steps.tables(result, _group)
    parts.append("\n".join([*_verdicts(result), *errors(result)]))
    found = profiles(result, OURS, lambda key: f"{_group(key)}, {key['mode']}")
    if found:
        parts.append("Where qkv's step spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _group(key: dict[str, Any]) -> str:
    return f"V {key['vocab_size']}, {key['precision']}"


def _verdicts(result: Result) -> list[str]:
    lines, largest = [], max(result.keys("vocab_size"), default=0)
    for precision, target in EAGER.items():
        key = {"vocab_size": largest, "precision": precision}
        where = f"V {largest}, {precision}"
        lines += steps.advantage_line(result, f"{where}, eager", target, **key, mode="eager", allocator=OWN)
        for allocator, least in COMPILED.items():
            what = f"{where}, compiled, {'the same allocator for both' if allocator == SAME else 'as users run them'}"
            lines += steps.advantage_line(result, what, least, **key, mode="compiled", allocator=allocator)
        for record in result.records(**key, mode="eager", allocator=OWN):
            peers = [record.memory(name) for name in record.names if name != OURS]
            if OURS in record.names and peers:
                share = record.memory(OURS) / min(peers)
                lines.append(verdict(f"peak memory by the leanest peer's, {where}, eager", share, 1.0, "×"))
    for (precision, mode), least in MFU.items():
        for record in result.records(precision=precision, mode=mode, allocator=OWN):
            if OURS in record.names:
                where = f"V {record.key['vocab_size']}, {precision}, {mode}"
                lines.append(verdict(f"MFU, {where}", steps.utilization(record, OURS), least, least=True))
    return lines


TABLE = Table("train", 5, cases, render)
