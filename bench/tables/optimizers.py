"""Optimizers at several learning rates: the validation loss after few steps, to know where to begin to look."""

from __future__ import annotations

from functools import partial

from .. import corpora
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown

CONTEXT = 128
RATES: dict[str, tuple[float, ...]] = {
    "adamw": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
    "adamw-8bit": (1e-3, 4e-3),
    "muon": (1e-3, 5e-3, 1e-2, 2e-2, 4e-2),
    "adafactor": (1e-2, 5e-2),
    "lion": (3e-4, 1e-3),
    "sgd": (0.1, 0.5),
    "adagrad": (1e-2, 5e-2),
}
SETTINGS = [
    "tokenizer={kind: char}",
    f"model={{preset: gpt, d_model: 128, n_layers: 4, n_heads: 4, dropout: 0.0, max_positions: {CONTEXT}}}",
    f"batching={{tokens: 1024, context: {CONTEXT}, rows: stream}}",
    "training.schedule={kind: cosine, warmup: 20, final_ratio: 0.1}",
    *("training.max_steps=300", "training.eval_every=null", "training.save_every=null"),
    *("training.precision=fp32", "training.compile=false"),
    *("evaluation.examples=16", "evaluation.test_examples=16", "evaluation.samples=1"),
]
QUICK = ["training.max_steps=5", "evaluation.examples=4", "evaluation.test_examples=4"]


def cases(quick: bool) -> list[Case]:
    texts = corpora.shakespeare(20_000 if quick else None)
    common = {"recipe": "lm", "train": texts.train, "validation": texts.validation, "context": CONTEXT}
    settings = [*SETTINGS, *(QUICK if quick else [])]
    contenders = tuple(
        Contender(
            f"{kind} {rate:g}",
            "bench.contenders.ours_run:Run",
            {**common, "settings": [*settings, f"training.optimizer={{kind: {kind}, lr: {rate}}}"]},
        )
        for kind, rates in RATES.items()
        for rate in rates
    )
    return [Case({"what": "tinyshakespeare", "settings": settings}, contenders, whole=True)]


def render(result: Result) -> str:
    record = result.find(what="tinyshakespeare")
    assert record is not None
    rows = [[kind, ", ".join(found)] for kind in RATES if (found := _losses(record, kind))]
    settings = " ".join(repr(one) if " " in one else one for one in record.key["settings"])
    command = f"- `qkv train lm {settings} 'training.optimizer={{kind: muon, lr: 1.0e-2}}'`"
    return "\n\n".join([markdown(["optimizer", "validation loss at a learning rate"], rows), command, *errors(result)])


def _losses(record: Record, kind: str) -> list[str]:
    """Each rate with its loss, the least in bold."""
    losses = {
        name.split()[1]: sum(found) / len(found)
        for name in record.names
        if name.split()[0] == kind and (found := record.told(name, "loss"))
    }
    least = min(losses.values(), default=0.0)
    return [
        f"{rate}: {'**' if loss == least else ''}{loss:.2f}{'**' if loss == least else ''}"
        for rate, loss in losses.items()
    ]


TABLE = Table("optimizers", 1, cases, render, lacks=partial(corpora.missing, corpora.SHAKESPEARE))
