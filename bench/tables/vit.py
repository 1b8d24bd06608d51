"""A training step of ViT-S/16 beside timm's and the Hub's, and what feeding pictures changed by chance costs at 32 × 32."""

from __future__ import annotations

from statistics import median
from typing import Any

from ..contenders import vit
from ..lockstep import Case, Contender
from ..results import Record, Result
from . import steps
from .steps import MODES, OURS, OWN, PRECISIONS
from .table import Table, errors, markdown, number, profiles, spread, verdict

TIMM, HUB = "timm", "Hugging Face ViT"
WHO: steps.Who = {
    OURS: ("bench.contenders.vit_ours:TrainingStep", "qkv"),
    TIMM: ("bench.contenders.vit_timm:TrainingStep", "timm"),
    HUB: ("bench.contenders.vit_hub:TrainingStep", "huggingface"),
}
TARGETS = {TIMM: 1.0, HUB: 1.2}

STILL, WAITS = "the same batch again", 0.05
CROPS = [{"kind": "random-crop", "padding": 4}, {"kind": "flip"}]
CHANGES: dict[str, dict[str, Any]] = {
    "crop, flip": {"augment": CROPS},
    "crop, flip, RandAugment, erasing, mixup or cutmix": {
        "augment": [*CROPS, {"kind": "rand-augment"}, {"kind": "random-erasing"}],
        "mix": [{"kind": "mixup"}, {"kind": "cutmix"}],
    },
    "resized crop, flip, color jitter": {
        "augment": [{"kind": "random-resized-crop"}, {"kind": "flip"}, {"kind": "color-jitter", "hue": 0.1}]
    },
}
LITTLE: vit.Shape = {
    "image": 32,
    "patch": 4,
    "d_model": 192,
    "n_layers": 6,
    "n_heads": 3,
    "d_ff": 768,
    "labels": 10,
    "batch": 64,
}


def cases(quick: bool) -> list[Case]:
    shape, little = (vit.TINY, {**LITTLE, "n_layers": 1, "batch": 16}) if quick else (vit.SMALL, LITTLE)
    tokens = shape["batch"] * vit.tokens(shape)
    made = steps.cases(WHO, {**shape, "vocab_size": shape["labels"]}, vit.step_flops(shape), tokens)
    return [*made, _feeding(little, 4 if quick else 20)]


def _feeding(shape: vit.Shape, count: int) -> Case:
    options = {"shape": shape, "steps": count}
    ways = {STILL: None, **CHANGES}
    contenders = tuple(
        Contender(name, "bench.contenders.vit_ours:Loading", {**options, "changes": changes}, keep_pages=True)
        for name, changes in ways.items()
    )
    return Case({"of": "feeding", "pictures": shape["batch"] * count, "image": shape["image"]}, contenders)


def render(result: Result) -> str:
    trained = Result(**{**vars(result), "cases": [c for c in result.cases if c["key"].get("of") != "feeding"]})
    parts = steps.tables(trained, lambda key: key["precision"])
    fed = result.find(of="feeding")
    if fed is not None:
        parts.append(_fed(fed))
    parts.append("\n".join([*_verdicts(trained), *([] if fed is None else _waits(fed)), *errors(result)]))
    found = profiles(trained, OURS, lambda key: f"{key['precision']}, {key['mode']}")
    if found:
        parts.append("Where qkv's step spends its time (share of self time, by operation):\n\n" + "\n".join(found))
    return "\n\n".join(part for part in parts if part)


def _verdicts(result: Result) -> list[str]:
    lines = []
    for mode in MODES:
        for record in (r for p in PRECISIONS for r in result.records(mode=mode, precision=p, allocator=OWN)):
            for peer, target in TARGETS.items():
                if {OURS, peer} <= set(record.names):
                    what = f"qkv against {peer}, {mode}, {record.key['precision']}"
                    lines.append(verdict(what, median(record.ratios(peer, OURS)), target, "×", least=True))
    return lines


def _fed(record: Record) -> str:
    side, count = record.key["image"], record.key["pictures"]
    header = [f"pictures of {side} × {side} pixels", "pictures/s", "of the time waiting", "time ÷ without"]
    rows = [
        [
            name,
            number(1e3 * count / record.median(name)),
            f"{median(record.told(name, 'waited')):.1%}",
            spread(record.ratios(name, STILL)) if name != STILL and STILL in record.names else "",
        ]
        for name in record.names
    ]
    return markdown(header, rows)


def _waits(record: Record) -> list[str]:
    return [
        verdict(f"share of the time waiting for pictures, {name}", median(record.told(name, "waited")), WAITS)
        for name in record.names
        if name != STILL
    ]


TABLE = Table("vit", 5, cases, render)
