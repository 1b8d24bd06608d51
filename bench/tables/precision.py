"""What bf16 and compiling gain here, model by model; and what a model trained in bf16 is worth beside one in fp32."""

from __future__ import annotations

from statistics import median
from typing import Any

from .. import corpora
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, spread

FP32, BF16 = "fp32", "bf16"
COMPILED = {FP32: "fp32, compiled", BF16: "bf16, compiled"}

# d_model, n_layers, n_heads, context, batch, vocab_size
TEXTS = [
    (64, 2, 2, 64, 32, 65),
    (128, 4, 4, 64, 12, 65),
    (128, 4, 4, 256, 8, 4000),
    (256, 4, 4, 256, 8, 4000),
    (384, 6, 6, 256, 4, 8192),
]
# The same, with gated feed-forward layers.
GATED = [(128, 4, 4, 256, 8, 4000), (256, 4, 4, 256, 8, 4000), (384, 6, 6, 256, 4, 8192)]
# d_model, layers a side, n_heads, tokens a side, batch, vocab_size
PAIRS = [
    (64, 2, 2, 12, 64, 30),
    (128, 2, 4, 16, 64, 1500),
    (128, 2, 4, 64, 16, 1500),
    (192, 3, 4, 32, 32, 4000),
    (256, 3, 4, 32, 32, 8000),
    (512, 3, 8, 32, 32, 8000),
]

# How the page names what is trained.
NAMES = {"text": "text", "gated text": "text, Llama", "pairs": "pairs"}

# A model that `auto` trains in bf16, on tinyshakespeare by characters.
CONTEXT = 128
SETTINGS = [
    "tokenizer={kind: char}",
    f"model={{preset: gpt, d_model: 256, n_layers: 4, n_heads: 4, dropout: 0.0, max_positions: {CONTEXT}}}",
    f"batching={{tokens: 2048, context: {CONTEXT}, rows: stream}}",
    "training.optimizer={kind: adamw, lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.1}",
    "training.schedule={kind: cosine, warmup: 50, final_ratio: 0.1}",
    *("training.max_steps=600", "training.eval_every=null", "training.save_every=null", "training.compile=false"),
    *("evaluation.examples=64", "evaluation.test_examples=64", "evaluation.samples=1"),
]
QUICK = ["training.max_steps=10", "evaluation.examples=4", "evaluation.test_examples=4"]


def cases(quick: bool) -> list[Case]:
    texts, gated, pairs = (TEXTS[:1], GATED[:1], PAIRS[:1]) if quick else (TEXTS, GATED, PAIRS)
    found = [
        *(_text("text", *sizes) for sizes in texts),
        *(_text("gated text", *sizes) for sizes in gated),
        *(_pairs(*sizes) for sizes in pairs),
    ]
    return found if corpora.missing(corpora.SHAKESPEARE) else [*found, _quality(quick)]


def _text(of: str, width: int, layers: int, heads: int, context: int, batch: int, vocabulary: int) -> Case:
    """Rows of one shape, so compiling is an offer."""
    shape = {
        "vocab_size": vocabulary,
        "d_model": width,
        "n_layers": layers,
        "n_heads": heads,
        "context": context,
        "batch": batch,
    }
    ways = [(FP32, False), (BF16, False), (FP32, True), (BF16, True)]
    contenders = tuple(
        Contender(
            COMPILED[precision] if compiled else precision,
            "bench.contenders.ours:TrainingStep",
            {"shape": shape, "precision": precision, "compiled": compiled, "gated": of == "gated text"},
            keep_pages=True,
        )
        for precision, compiled in ways
    )
    key = {"of": of, "width": width, "layers": layers, "vocabulary": vocabulary, "context": context}
    return Case({**key, "tokens": batch * context}, contenders)


def _pairs(width: int, layers: int, heads: int, side: int, batch: int, vocabulary: int) -> Case:
    shape = {
        "vocab_size": vocabulary,
        "d_model": width,
        "d_ff": 4 * width,
        "n_layers": layers,
        "n_heads": heads,
        "source": side,
        "target": side,
        "batch": batch,
    }
    contenders = tuple(
        Contender(
            precision,
            "bench.contenders.ours_pairs:FullRows",
            {"shape": shape, "precision": precision},
            keep_pages=True,
        )
        for precision in (FP32, BF16)
    )
    key = {"of": "pairs", "width": width, "layers": layers, "vocabulary": vocabulary, "context": side}
    return Case({**key, "tokens": 2 * batch * side}, contenders)


def _quality(quick: bool) -> Case:
    texts = corpora.shakespeare(20_000 if quick else None)
    common = {"recipe": "lm", "train": texts.train, "validation": texts.validation, "context": CONTEXT}
    settings = [*SETTINGS, *(QUICK if quick else [])]
    contenders = tuple(
        Contender(
            precision,
            "bench.contenders.ours_run:Run",
            {**common, "settings": [*settings, f"training.precision={precision}"]},
        )
        for precision in (FP32, BF16)
    )
    return Case({"of": "quality", "settings": settings}, contenders, whole=True)


def render(result: Result) -> str:
    header = [
        "a training step of",
        "fp32, tokens/s",
        "bf16, tokens/s",
        "bf16 ÷ fp32",
        "compiling gains, fp32",
        "bf16",
    ]
    rows = [_row(record) for what in NAMES for record in result.records(of=what)]
    parts = [markdown(header, rows)]
    quality = result.find(of="quality")
    if quality is not None:
        parts.append(_worth(quality))
    return "\n\n".join([*parts, "\n".join(errors(result))]).strip()


def _row(record: Record) -> list[str]:
    key = record.key
    named = (
        f"{NAMES[key['of']]}, width {key['width']}, {_layers(key)}, vocabulary {key['vocabulary']:,}, {_length(key)}"
    )
    there = set(record.names)
    speeds = [number(1e3 * key["tokens"] / record.median(name)) if name in there else "" for name in (FP32, BF16)]
    pairs = [(FP32, BF16), (FP32, COMPILED[FP32]), (BF16, COMPILED[BF16])]
    return [named, *speeds, *(spread(record.ratios(*pair)) if there.issuperset(pair) else "" for pair in pairs)]


def _layers(key: dict[str, Any]) -> str:
    return f"{key['layers']} layers" if key["of"] != "pairs" else f"{key['layers']} + {key['layers']} layers"


def _length(key: dict[str, Any]) -> str:
    return f"context {key['context']}" if key["of"] != "pairs" else f"{key['context']} tokens a side"


def _worth(record: Record) -> str:
    """Validation losses after as many steps from the same seeds."""
    losses = {name: record.told(name, "loss") for name in record.names}
    rows = [
        [
            name,
            ", ".join(f"{x:.4f}" for x in found),
            f"{median(found):.4f}",
            number(median(record.told(name, "train_s"))),
        ]
        for name, found in losses.items()
    ]
    command = " ".join(repr(one) if " " in one else one for one in record.key["settings"])
    return (
        markdown(["tinyshakespeare, trained in", "validation loss, by seed", "median", "training, s"], rows)
        + f"\n\n- `qkv train lm {command} training.precision=bf16`"
    )


TABLE = Table("precision", 5, cases, render)
