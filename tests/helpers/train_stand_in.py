"""A tiny model and an endless, resumable stream with the interfaces that training relies on; imported by path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from qkv.core.batch import IGNORE, Batch
from qkv.training.loop import fit
from qkv.training.objective import NextToken
from qkv.training.result import TrainingResult
from qkv.training.settings import Training

VOCAB, WIDTH = 13, 8
torch.set_num_threads(1)  # on tensors of this size a second thread only waits for the first


class LossSums(NamedTuple):
    loss: Tensor
    nll: Tensor
    count: Tensor
    extras: None = None


class Tiny(nn.Module):
    """Embedding, norm, a layer with dropout, and an output layer tied to the embedding."""

    def __init__(self, seed: int = 0, dropout: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("counter", torch.zeros(3, dtype=torch.int64))

    def forward(self, ids: Tensor, labels: Tensor, label_smoothing: float = 0.0, target: Tensor | None = None) -> Any:
        x = self.dropout(torch.relu(self.layer(self.norm(self.embedding(ids)))))
        logits = self.output(x).float().flatten(0, 1)
        flat = labels.flatten()
        loss = F.cross_entropy(logits, flat, ignore_index=IGNORE, reduction="sum", label_smoothing=label_smoothing)
        nll = F.cross_entropy(logits.detach(), flat, ignore_index=IGNORE, reduction="sum")
        return LossSums(loss, nll, (flat != IGNORE).sum())


def batch(index: int, rows: int = 4) -> Batch:
    """The batch of a number, with a different number of labels each time."""
    made = torch.Generator().manual_seed(index)
    ids = torch.randint(0, VOCAB, (rows, 6), generator=made)
    labels = (ids * 3 + 1) % VOCAB
    labels[torch.rand(labels.shape, generator=made) < 0.4] = IGNORE
    count = int((labels != IGNORE).sum())
    return Batch({"ids": ids}, labels, {"loss": count}, ids.numel(), ids.numel(), {"next": index + 1})


def open_stream(position: dict[str, Any] | None = None) -> Iterator[Batch]:
    return (batch(i) for i in itertools.count(position["next"] if position else 0))


def evaluate(model: nn.Module, step: int) -> dict[str, float]:
    """Draws random numbers as sampling would, which must not reach training."""
    assert not model.training
    torch.rand(step)
    sums = [model(**b.inputs, labels=b.labels) for b in map(batch, range(10_000, 10_003))]
    return {"loss": float(sum(s.nll for s in sums) / sum(s.count for s in sums))}


QUICK: dict[str, Any] = {"max_steps": 12, "eval_every": 5, "save_every": 4, "log_every": 3, "accumulate": 2, "keep": 3}


def train(out: Path, model: nn.Module | None = None, stream: Any = open_stream, **changes: Any) -> TrainingResult:
    """A run of the tiny model, quick by default; `resume`, `evaluate`, `objective` and `seed` go to `fit`."""
    passed = {
        key: changes.pop(key)
        for key in ("resume", "seed", "objective", "fingerprint", "begin", "console")
        if key in changes
    }
    passed.setdefault("objective", NextToken(label_smoothing=0.1))
    evaluator = changes.pop("evaluate", evaluate)
    schedule = {"kind": "inverse-square-root", "warmup": 3}
    training = Training.from_dict({"schedule": schedule, **QUICK, **changes})
    model = Tiny() if model is None else model
    return fit(model, stream, training=training, out=out, evaluate=evaluator, **passed)
