"""tinyshakespeare by characters, in nanoGPT's small setting for a CPU: whole runs, their time and what they learn."""

from __future__ import annotations

from functools import partial
from statistics import median

from .. import checks, corpora
from ..lockstep import Case, Contender
from ..results import Record, Result
from .table import Table, errors, markdown, number, spread, verdict

NANOGPT, SAME, OWN = "nanoGPT", "qkv, the same settings", "qkv, settings of its own, in nanoGPT's time"
CONTEXT, LOSS = 64, 1.88  # what nanoGPT's README gives

# The README's command, word for word.
THEIRS = [
    *("--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12"),
    *("--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
]

# The same for the recipe `lm`. At each of its evaluations nanoGPT reads 20 batches of 12 rows of either split.
RECIPE = "lm"
SETTINGS = [
    "tokenizer={kind: char}",
    "model={preset: gpt, d_model: 128, n_layers: 4, n_heads: 4, dropout: 0.0, bias: false, max_positions: 64}",
    "batching={tokens: 768, context: 64, rows: stream}",
    "training.optimizer={kind: adamw, lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.1}",
    "training.schedule={kind: cosine, warmup: 100, final_ratio: 0.1}",
    *("training.max_steps=2000", "training.eval_every=250", "training.save_every=250"),
    *("training.precision=fp32", "training.compile=false"),
    *("evaluation.examples=480", "evaluation.test_examples=480", "evaluation.samples=1"),
]

# What qkv would rather do with the same time.
OWN_RECIPE = "lm"
OWN_SETTINGS = [
    "tokenizer={kind: char}",
    "model={preset: llama, d_model: 128, n_layers: 4, n_heads: 4, d_ff: 344, max_positions: 64, tied: true}",
    "batching={tokens: 768, context: 64, rows: stream}",
    "training.optimizer={kind: muon, lr: 2.0e-2, adamw_lr: 5.0e-3, weight_decay: 0.1}",
    "training.schedule={kind: cosine, warmup: 30, unit: time, final_ratio: 0.02}",
    *("training.eval_every=500", "training.save_every=500"),
    *("training.precision=fp32", "training.compile=false"),
    *("evaluation.examples=480", "evaluation.test_examples=480", "evaluation.samples=1"),
]

# What makes each of them a matter of seconds.
QUICK_THEIRS = ["--max_iters=20", "--lr_decay_iters=20", "--eval_interval=10", "--eval_iters=1", "--warmup_iters=2"]
QUICK = ["training.max_steps=20", "training.eval_every=10", "evaluation.examples=4", "evaluation.test_examples=4"]


def cases(quick: bool) -> list[Case]:
    texts = corpora.shakespeare(20_000 if quick else None)
    paths = {"train": texts.train, "validation": texts.validation}
    clock = str(corpora.MADE / "nanogpt-seconds")
    theirs = {**paths, "settings": [*THEIRS, *(QUICK_THEIRS if quick else [])], "clock": clock}
    ours = partial(Contender, what="bench.contenders.ours_run:Run")
    common = {**paths, "context": CONTEXT}
    more = QUICK if quick else []
    contenders = (
        Contender(NANOGPT, "bench.contenders.nanogpt:Run", theirs, "nanogpt"),
        ours(SAME, options={**common, "recipe": RECIPE, "settings": [*SETTINGS, *more]}),
        ours(OWN, options={**common, "recipe": OWN_RECIPE, "settings": [*OWN_SETTINGS, *more], "clock": clock}),
    )
    key = {"what": "tinyshakespeare", "recipe": RECIPE, "settings": SETTINGS, "own": [OWN_RECIPE, *OWN_SETTINGS]}
    return [Case(key, contenders, whole=True)]


def render(result: Result) -> str:
    record = result.find(what="tinyshakespeare")
    assert record is not None
    alike = [name for name in (NANOGPT, SAME) if name in record.names]
    checks.same_size({name: {"parameters": record.told(name, "parameters")[0]} for name in alike})
    header = [
        "",
        "validation loss",
        "training, s",
        "the whole command, s",
        "parameters",
        "peak MiB",
        "training ÷ nanoGPT's",
    ]
    lines = [markdown(header, (_row(record, name) for name in record.names)), ""]
    lines += [*_verdicts(record), *errors(result), "", *_settings(record)]
    return "\n".join(lines)


def _row(record: Record, name: str) -> list[str]:
    return [
        name,
        _three(record.told(name, "loss")),
        number(median(record.told(name, "train_s"))),
        number(median(record.told(name, "wall_s"))),
        f"{record.told(name, 'parameters')[0]:,.0f}",
        number(max(record.told(name, "peak_mib"))),
        "" if name == NANOGPT or NANOGPT not in record.names else spread(_times(record, name)),
    ]


def _three(losses: list[float]) -> str:
    """As `spread`, with the digits that losses differ in."""
    return f"{median(losses):.3f} ({min(losses):.3f}–{max(losses):.3f})"


def _times(record: Record, name: str) -> list[float]:
    """Training time by nanoGPT's, round by round."""
    pairs = zip(record.told(name, "train_s"), record.told(NANOGPT, "train_s"), strict=True)
    return [ours / theirs for ours, theirs in pairs]


def _verdicts(record: Record) -> list[str]:
    lines = []
    if SAME in record.names:
        lines.append(verdict(f"validation loss, {SAME}", median(record.told(SAME, "loss")), LOSS))
    if {NANOGPT, SAME} <= set(record.names):
        lines.append(verdict("training time with them ÷ nanoGPT's", median(_times(record, SAME)), 1.0))
    if {NANOGPT, OWN} <= set(record.names):
        theirs = median(record.told(NANOGPT, "loss"))
        lines.append(
            verdict("validation loss, qkv's settings in nanoGPT's time", median(record.told(OWN, "loss")), theirs)
        )
    return lines


def _settings(record: Record) -> list[str]:
    """The two commands of qkv's, for those who want to run them."""
    recipe, *settings = record.key["own"]
    both = (
        ("The same settings", record.key["recipe"], record.key["settings"]),
        ("Settings of its own", recipe, settings),
    )
    return [
        f"- {what}: `qkv train {recipe} {' '.join(repr(one) if ' ' in one else one for one in given)}`"
        for what, recipe, given in both
    ]


TABLE = Table("shakespeare", 3, cases, render, lacks=partial(corpora.missing, corpora.SHAKESPEARE))
